"""Changes that were made elsewhere and are judged here again, as patches for the inbox.

A source is an earlier campaign, a folder of patches, or a commit or branch of the project. Nothing
of an earlier verdict is believed: it only says which candidates of a campaign are worth a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.journal.read import Reader
from engine.journal.records import COMMITTED, Campaign
from engine.repository.campaign_repo import CANDIDATES
from engine.repository.clone import Clone
from harness.errors import InputError, Refused
from kopt_tui.cli.user_repository import UserRepository

SUFFIXES = (".patch", ".diff")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--full-index")


class EarlierChange(NamedTuple):
    """A change against its campaign's baseline: where it comes from, its patch, its hypothesis."""

    name: str
    patch: bytes
    hypothesis: str = ""


def earlier_changes(reader: Reader, chosen: Campaign, source: str) -> list[EarlierChange]:
    """Return the changes of a source, in the order in which they were made.

    Raises InputError if the source has none, or is no campaign, folder, commit or branch.
    """
    if Path(source).is_dir():
        changes = list(_of_folder(Path(source)))
    elif earlier := next((own for own in reader.campaigns() if own.id == source), None):
        if earlier.id == chosen.id:
            raise InputError(f"{source} is the campaign that judges them",
                             fix="name the campaign that is to judge after the source")
        changes = list(_of_campaign(reader, earlier))
    else:
        changes = [_of_commit(chosen, source)]
    if not changes:
        raise InputError("the source has no change to judge", where=source,
                         fix="a campaign needs a candidate that was measured as faster, a folder "
                             "files named *.patch or *.diff")
    return changes


def _of_folder(folder: Path) -> Iterator[EarlierChange]:
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink():
            yield EarlierChange(path.stem, path.read_bytes())


def _of_campaign(reader: Reader, earlier: Campaign) -> Iterator[EarlierChange]:
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
    repository = UserRepository(Path(chosen.project))
    try:
        commit = repository.line("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        subject = repository.line("log", "-1", "--format=%s", commit)
        base = repository.line("merge-base", chosen.base_commit, commit)
    except Refused as error:
        raise InputError(f"{name!r} is no campaign, folder, commit or branch: {error.what}",
                         where=str(repository.path)) from None
    return EarlierChange(name, repository.git(*_DIFF, base, commit), subject)
