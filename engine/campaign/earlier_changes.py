"""Changes that were recorded earlier, for a campaign to judge anew; none of their results is used.

They are a candidate, those of another campaign, a folder of patches, a commit or branch of the
project, or knobs that the workspace's corpus holds.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine.journal.read import Reader
from engine.journal.records import COMMITTED, Campaign, Candidate
from engine.repository.campaign_repo import CANDIDATES
from engine.repository.clone import Clone
from engine.repository.git import GitFailed, locate
from engine.repository.patches import patch as patch_text
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import InputError, Refused
from harness.formats.text import one_line
from harness.search.space.tunable_source import TunableSource
from harness.search.trials import corpus
from harness.tasks.target import Target

CORPUS = "corpus"
"""Names the workspace's measured trials as a source of changes."""
SUFFIXES = (".patch", ".diff")
MAX_BYTES = 4 << 20
RECORDED = 8
NO_NEWLINE = "\n\\ No newline at end of file\n"

Kernel = tuple[Target | CommandTarget, Clone]
"""The target of the campaign that judges, and its repository."""


class EarlierChange(NamedTuple):
    """A change: where it comes from, its patch, its hypothesis."""

    name: str
    patch: bytes
    hypothesis: str = ""

    @property
    def submission(self) -> bytes:
        """The contents of an inbox's file: the patch, with the hypothesis, if any, before it."""
        return stated(self.hypothesis, self.patch)


def stated(hypothesis: str, patch: bytes) -> bytes:
    """Return a patch or a source with its hypothesis, if any, before it."""
    return f"Hypothesis: {one_line(hypothesis, 400)}\n\n".encode() + patch if hypothesis else patch


def read(reader: Reader, chosen: Campaign, source: str,
         kernel: Callable[[], Kernel]) -> list[EarlierChange]:
    """Return the changes of a source, in the order of a folder's file names or of a campaign.

    Raises InputError if it has none, or is no campaign, candidate, folder, commit or branch.
    """
    if Path(source).is_dir():
        changes = [EarlierChange(path.stem, path.read_bytes())
                   for path in sorted(Path(source).iterdir())
                   if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()]
    elif earlier := next((row for row in reader.campaigns() if row.id == source), None):
        if earlier.id == chosen.id:
            raise InputError(f"{source} is the campaign that would judge the changes",
                             fix="after the source, name the campaign that should judge them")
        changes = list(_campaign_changes(reader, earlier))
    elif named := candidate(reader, chosen, source):
        changes = [of_candidate(reader, chosen, named)]
    elif source == CORPUS:
        changes = _of_corpus(Path(chosen.path).parent, chosen, *kernel())
    else:
        changes = [_of_commit(chosen, source)]
    if not changes:
        raise InputError("the source has no change to judge", where=source,
                         fix="a campaign needs a candidate that was measured as faster, a folder "
                             "files named *.patch or *.diff, the corpus trials of other knobs")
    for change in changes:
        if len(change.patch) > MAX_BYTES:
            raise InputError(f"{change.name} is larger than {MAX_BYTES >> 20} MiB", where=source)
        check_diff(change.patch, change.name)
    return changes


def hand_in(changes: Iterable[EarlierChange], inbox: Path) -> None:
    """Write changes to a campaign's inbox, in their order."""
    for number, change in enumerate(changes, 1):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", change.name)[:60]
        (inbox / f"{number:03}-{name}.patch").write_bytes(change.submission)


def check_diff(patch: bytes, where: str) -> None:
    """Raise InputError for a diff that is torn or changes nothing."""
    if all(file.is_empty for file in patch_text.parse(patch, where).files):
        raise InputError("the diff has no hunk: it changes nothing", where=where,
                         fix="git diff prints one")


def candidate(reader: Reader, chosen: Campaign, name: str) -> Candidate | None:
    """Return the candidate of this name: the judging campaign's, else any other's, else None."""
    for campaign in (chosen.id, None):
        with contextlib.suppress(InputError):
            return reader.candidate(name, campaign)
    return None


def of_candidate(reader: Reader, chosen: Campaign, candidate: Candidate) -> EarlierChange:
    """Return a candidate's patch; for one of another campaign, its change since the baseline there.

    Raises Refused for a candidate of the campaign that would not be measured again.
    """
    name = candidate.id[:12]
    if candidate.campaign != chosen.id:
        earlier = reader.campaign(candidate.campaign)
        assert earlier is not None
        clone = Clone(Path(earlier.path) / "repo.git")
        tree = clone.git.find(f"{CANDIDATES}/{candidate.id}") or ""
        return EarlierChange(name, clone.diff(earlier.base_commit, tree).data,
                             candidate.hypothesis)
    newest = reader.newest_decision(chosen.id, candidate.id)
    if candidate.state != "closed" or newest is None or not newest.allows_repeat:
        raise Refused(f"candidate {name} is {candidate.state}: nothing to measure again",
                      fix=f"kopt show {name} says why")
    return EarlierChange(name, (Path(chosen.path) / candidate.patch_path).read_bytes(),
                         candidate.hypothesis)


def _campaign_changes(reader: Reader, earlier: Campaign) -> Iterator[EarlierChange]:
    """Yield what was committed or measured as faster, as the whole change since the baseline."""
    faster = {row.candidate for row in reader.verdicts(earlier.id)
              if row.valid and row.correct and (row.low or 0.0) > 1.0}
    clone, seen = Clone(Path(earlier.path) / "repo.git"), set[str]()
    for candidate in reader.candidates(earlier.id):
        tree = clone.git.find(f"{CANDIDATES}/{candidate.id}")
        if tree and tree not in seen and (
                candidate.state in COMMITTED or candidate.id in faster):
            seen.add(tree)
            yield EarlierChange(f"{earlier.id}-{candidate.id[:8]}",
                                clone.diff(earlier.base_commit, tree).data, candidate.hypothesis)


def _of_commit(chosen: Campaign, name: str) -> EarlierChange:
    """Return all that a commit or branch of the project changes since the campaign's baseline."""
    project = Path(chosen.project)
    try:
        if (place := locate(project)) is None:
            raise InputError("the project is no git repository")
        clone = Clone(place.git_dir)
        commit = clone.resolve(name)
        base = clone.git.line("merge-base", chosen.base_commit, commit)
    except (GitFailed, InputError) as error:
        raise InputError(f"{name!r} is not a campaign, candidate, folder, commit or branch: "
                         f"{error.what}", where=str(project)) from None
    return EarlierChange(name, clone.diff(base, commit).data,
                         clone.git.line("log", "-1", "--format=%s", commit))


def _of_corpus(workspace: Path, chosen: Campaign, target: Target | CommandTarget,
               repo: Clone) -> list[EarlierChange]:
    """Return the fastest configurations that searches of the workspace have measured of a kernel.

    They are changes of the campaign's present best, at most RECORDED. Raises InputError.
    """
    path = target.source
    if isinstance(target, CommandTarget) or not path:
        raise InputError("the corpus holds measurements of kernels alone", where=CORPUS)
    best = repo.read(chosen.best_commit or chosen.base_commit, path).decode(errors="replace")
    source = TunableSource.parse(best, language=target.language, path=path)
    try:
        reading = corpus.read(workspace / corpus.FILE, op=target.op)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=corpus.FILE) from None
    records = [record for record in corpus.matching(
        reading.records, op=target.op, language=target.language,
        kernel=source.kernel_id(target.op), names=[knob.name for knob in source.knobs])
        if record.correctness == "PASS" and record.log_ratio is not None]
    records.sort(key=lambda record: -(record.log_ratio or 0.0))
    changes: dict[bytes, EarlierChange] = {}
    for record in records:
        text = source.configured(record.config)
        if text is not None and text != best and len(changes) < RECORDED:
            values = ", ".join(f"{name} {value}" for name, value in record.config.items())
            lines = difflib.unified_diff(best.splitlines(True), text.splitlines(True),
                                         f"a/{path}", f"b/{path}")
            patch = "".join(line if line.endswith("\n") else f"{line}{NO_NEWLINE}"
                            for line in lines).encode()
            changes.setdefault(patch, EarlierChange(
                f"{CORPUS}-{record.candidate_id}", patch, f"measured in a search: {values}"))
    return list(changes.values())
