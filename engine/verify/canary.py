"""The canary: a copy of the baseline whose editable files are broken must not pass.

A benchmark that runs other files than candidates change would find each of them exactly as fast
as the incumbent, for a whole campaign. It costs one run, at the baseline, and one more for each of
the first few files where there are several: one that is read does not vouch for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from engine.campaign import baseline_cache
from engine.campaign.setup import Setup
from engine.globs import matches
from engine.repository import checkout
from engine.repository.clone import Clone
from harness.benchmark.verdict.canary_check import SHOWN, UNBUILT, UNSEEN
from harness.errors import InputError
from harness.verdict import Verdict

PURPOSE = "canary"
"""Of its job and of its verdict in the journal."""
BROKEN = b""")( "this copy was broken on purpose, to see whether anything runs it
#error broken on purpose
\t[{ <%
"""
"""What no language takes: neither Python nor C, a shell, YAML, JSON, TOML or assembly."""
BEFORE = ("a broken copy does not build, and the benchmark then runs what was carried along: "
          "that it runs what candidates build is not proven")
NAMED = 3
ALONE = 4
"""Files at most that are broken one by one."""
PROSE = (".md", ".rst", ".txt")
STALE = ("a compiler's cache hides changes of the source: everything is compiled from nothing for "
         "every verdict")


def editable(files: Iterable[str], edit: Sequence[str], frozen: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a tree that a candidate may change."""
    return tuple(path for path in files if matches(path, edit) and not matches(path, frozen))


def watched(clone: Clone, commit: str, edit: Sequence[str], frozen: Sequence[str],
            source: str = "") -> tuple[str, ...]:
    """Return the files to break, none where nothing is to be proven.

    A kernel's own `source` is loaded by kopt itself, by its path and its hash; what lies beside it
    may be shadowed by an installed package like anything else.
    """
    return tuple(path for path in editable(clone.files(commit), edit, frozen) if path != source)


def broken(clone: Clone, commit: str, names: Iterable[str]) -> str:
    """Return the tree of a commit in which these files are broken."""
    blob = clone.git.line("hash-object", "-w", "-t", "blob", "--stdin", stdin=BROKEN)
    listed = "".join(f"100644 {blob}\t{name}\0" for name in names)
    with clone.index(commit) as index:
        clone.git.run("update-index", "-z", "--index-info", index=index,
                      stdin=listed.encode(errors="surrogateescape"))
        return clone.git.line("write-tree", index=index)


def unseen(verdict: Verdict) -> bool:
    """Tell whether a verdict on the broken tree shows nothing of it.

    A command's says so itself; a kernel that is found correct ran without those files.
    """
    kinds = {one.kind for one in verdict.evidence}
    if kinds & {SHOWN, UNSEEN, UNBUILT}:
        return SHOWN not in kinds
    return verdict.valid and verdict.correct


def unbuilt(verdict: Verdict) -> bool:
    """Tell whether the broken tree showed in its build, but not in the benchmark."""
    return any(one.kind == UNBUILT for one in verdict.evidence)


def refusal(names: Sequence[str]) -> InputError:
    """Return why a campaign cannot go on: all of its verdicts would be on the baseline."""
    return InputError(
        f"the benchmark does not run the files that candidates change: it passes with "
        f"{_listed(names)} broken", where="edit",
        fix="have it import and build from its own folder, not from an installed package, or name "
        "the files that it does read in edit")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def of_campaign(setup: Setup, ask: Callable[[str], Verdict]) -> tuple[str, ...]:
    """Have a campaign's broken baseline judged by `ask`; see `listen`."""
    folder = setup.folder.path
    return listen(ask, setup.repo, setup.repo.base, edit=setup.edit, frozen=setup.frozen,
                  source="" if setup.command is not None else setup.target.source,
                  kernel=setup.target.source,
                  drop_cache=lambda: baseline_cache.drop(folder),
                  carries=(folder / checkout.FOLDER).is_dir())


def listen(ask: Callable[[str], Verdict], clone: Clone, commit: str, *, edit: Sequence[str],
           frozen: Sequence[str], source: str = "", kernel: str = "",
           drop_cache: Callable[[], bool] = lambda: False,
           carries: bool = False) -> tuple[str, ...]:
    """Have the broken tree judged by `ask`, once, and if that shows each of the first files broken
    alone, the `kernel` before the others; returns warnings.

    If nothing shows and `drop_cache` could drop a cache that the run was seeded with, it is asked
    once more: a compiler may go by a name, not by the source. Where a checkout `carries` built
    files it is enough that the build fails: the benchmark may run what was built before. Raises
    InputError where the broken files do not show, or the `kernel` among them does not, unless it is
    a kernel whose `source` is run.
    """
    names, told = watched(clone, commit, edit, frozen, source), list[str]()
    if not names:
        return ()

    def on_broken(*those: str) -> Verdict:
        tree = broken(clone, commit, those)
        verdict = ask(tree)
        if unseen(verdict) and not source and drop_cache():
            verdict = ask(tree)
            told.extend([] if unseen(verdict) else [STALE])
        return verdict

    verdict = on_broken(*names)
    if unseen(verdict) and source:
        return (_unread(names, source),)
    if unseen(verdict) and unbuilt(verdict) and carries:
        return (BEFORE,)
    if unseen(verdict):
        raise refusal(names)
    told += _notes(verdict)
    ordered = sorted(names, key=lambda name: (name != kernel, name.endswith(PROSE)))
    for name in ordered[:ALONE] if len(names) > 1 else ():
        verdict = on_broken(name)
        if unseen(verdict) and unbuilt(verdict) and carries:
            told.append(BEFORE)
        elif unseen(verdict) and name == kernel:
            raise refusal((name,))
        elif unseen(verdict):
            told.append(_unread((name,), source))
    return tuple(dict.fromkeys(told))


def _unread(names: Sequence[str], source: str) -> str:
    who = "the kernel does not use" if source else "the benchmark does not read"
    return f"{who} {_listed(names)}: what candidates change there is not measured"


def _notes(verdict: Verdict) -> tuple[str, ...]:
    """Return what the canary found besides; a kernel's verdict has notes of its own."""
    return verdict.notes if any(one.kind == SHOWN for one in verdict.evidence) else ()
