"""The canary: a copy of the baseline whose editable files are broken must not pass.

A benchmark that runs other files than candidates change would find every candidate exactly as fast
as the incumbent, for a whole campaign. The check costs one run at the baseline and, where there are
several files, one more for each of the first few: that one file is read proves nothing about the
others.

A second canary builds and runs but computes nothing. If the benchmark's check calls it correct, the
check cannot tell wrong results, and a person must look at every gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from engine.campaign import baseline_cache
from engine.campaign.setup import Setup
from engine.globs import matches
from engine.repository.checkouts import checkout
from engine.repository.clone import Clone
from engine.verify.emptied_source import KERNEL_MARK, KNOWN, emptied
from harness.benchmark.verdict.canary_check import SHOWN, UNBUILT, UNSEEN
from harness.errors import InputError
from harness.formats.quantities import listed
from harness.verdict import BLIND_CHECK, Verdict

PURPOSE = "canary"
"""The purpose of its verdict request, and of its verdict in the journal."""
EMPTIED = "emptied"
"""The name that stands for a candidate in the verdict on the copy that computes nothing."""
BROKEN = b""")( "this copy was broken on purpose, to see whether anything runs it
#error broken on purpose
\t[{ <%
"""
"""Invalid in every language: Python, C, shell, YAML, JSON, TOML and assembly."""
UNPROVEN = ("a broken copy does not build, but the benchmark passes with a build copied by "
            "`carry`: it is not proven that the benchmark runs what candidates build")
NAMED = 3
"""Limit of the files that a message names."""
MOST_ALONE = 4
"""Limit of the files that are also broken one by one."""
PROSE = (".md", ".rst", ".txt")
STALE = ("a compiler cache hides source changes: every verdict recompiles everything")


def watched(clone: Clone, commit: str, edit: Sequence[str], frozen: Sequence[str],
            source: str = "") -> tuple[str, ...]:
    """Return the files to break: those that a candidate may change and that need proof.

    kopt itself loads a kernel's own `source`, by its path and its hash; an installed package may
    still shadow the files next to it.
    """
    return tuple(path for path in clone.files(commit)
                 if path != source and matches(path, edit) and not matches(path, frozen))


def broken(clone: Clone, commit: str, names: Iterable[str]) -> str:
    """Return a commit's tree with these files broken."""
    return clone.with_files(commit, dict.fromkeys(names, BROKEN))


def unseen(verdict: Verdict) -> bool:
    """Return whether a verdict on the broken tree does not show the breakage."""
    kinds = {fact.kind for fact in verdict.evidence}
    if kinds & {SHOWN, UNSEEN, UNBUILT}:
        return SHOWN not in kinds
    return verdict.valid and verdict.correct


def only_build_fails(verdict: Verdict) -> bool:
    """Return whether the build of the broken tree failed, but the benchmark passed."""
    return any(fact.kind == UNBUILT for fact in verdict.evidence)


def refusal(names: Sequence[str]) -> InputError:
    """Return the error that ends a campaign whose verdicts would all be on the baseline."""
    return InputError(
        f"the benchmark does not run the files that candidates change: it passes with "
        f"{listed(names, NAMED)} broken", where="edit",
        fix="have it import and build from its own folder, not from an installed package, or name "
        "the files that it reads in edit")


def emptied_tree(setup: Setup) -> str:
    """Return the baseline's tree with functions that compute nothing, "" if none can be emptied.

    If the manifest names the kernel's source and some are there, the other files stay as they are;
    else, if there are kernels of the device, the files without them do.
    """
    clone, base = setup.repo, setup.repo.base
    names = [name for name in watched(clone, base, setup.edit, setup.frozen)
             if name.endswith(KNOWN)]
    sources = {name: text.encode("utf-8", "surrogateescape") for name in names
               if (text := emptied(name, clone.read(base, name).decode(
                   "utf-8", "surrogateescape"))) is not None}
    kernel = setup.manifest.kernel_source
    if kernel in sources:
        sources = {kernel: sources[kernel]}
    elif on_device := {name: text for name, text in sources.items()
                       if KERNEL_MARK.encode() in text}:
        sources = on_device
    return clone.with_files(base, sources) if sources else ""


def is_check_blind(verdict: Verdict) -> bool:
    """Return whether a verdict says that the copy that computes nothing passed."""
    return any(fact.kind == UNSEEN and fact.detail == BLIND_CHECK for fact in verdict.evidence)


def check_campaign(setup: Setup, judge: Callable[[str], Verdict]) -> tuple[str, ...]:
    """Run the canary of a campaign; see `check`."""
    folder = setup.folder.path
    return check(judge, setup.repo, setup.repo.base, edit=setup.edit, frozen=setup.frozen,
                 source="" if setup.command is not None else setup.target.source,
                 kernel=setup.target.source,
                 drop_cache=lambda: baseline_cache.drop(folder),
                 has_carried_builds=(folder / checkout.FOLDER).is_dir())


def check(judge: Callable[[str], Verdict], clone: Clone, commit: str, *, edit: Sequence[str],
          frozen: Sequence[str], source: str = "", kernel: str = "",
          drop_cache: Callable[[], bool] = lambda: False,
          has_carried_builds: bool = False) -> tuple[str, ...]:
    """Have `judge` judge the broken tree; return warnings.

    If the breakage shows, each of the first files is broken alone as well, the `kernel` first. If
    it does not show and `drop_cache` drops a cache that the run was seeded with, `judge` is called
    once more: a compiler may go by a file's name instead of its contents. Where the checkout
    `has_carried_builds` and only the build fails, that is a warning: the benchmark may run an
    earlier build. Otherwise it raises InputError where the breakage does not show, or not that of
    the `kernel` alone, unless kopt itself loads the kernel from `source`.
    """
    names, warnings = watched(clone, commit, edit, frozen, source), list[str]()
    if not names:
        return ()

    def verdict_on(*broken_names: str) -> Verdict:
        tree = broken(clone, commit, broken_names)
        verdict = judge(tree)
        if unseen(verdict) and not source and drop_cache():
            verdict = judge(tree)
            warnings.extend([] if unseen(verdict) else [STALE])
        return verdict

    verdict = verdict_on(*names)
    if unseen(verdict) and source:
        return (_warning_on_unread(names, source),)
    if unseen(verdict) and only_build_fails(verdict) and has_carried_builds:
        return (UNPROVEN,)
    if unseen(verdict):
        raise refusal(names)
    if any(fact.kind == SHOWN for fact in verdict.evidence):
        warnings += verdict.notes  # notes of a kernel's verdict are about other things
    ordered = sorted(names, key=lambda name: (name != kernel, name.endswith(PROSE)))
    for name in ordered[:MOST_ALONE] if len(names) > 1 else ():
        verdict = verdict_on(name)
        if unseen(verdict) and only_build_fails(verdict) and has_carried_builds:
            warnings.append(UNPROVEN)
        elif unseen(verdict) and name == kernel:
            raise refusal((name,))
        elif unseen(verdict):
            warnings.append(_warning_on_unread((name,), source))
    return tuple(dict.fromkeys(warnings))


def _warning_on_unread(names: Sequence[str], source: str) -> str:
    reader = "the kernel does not use" if source else "the benchmark does not read"
    return f"{reader} {listed(names, NAMED)}: candidates' changes there are not measured"
