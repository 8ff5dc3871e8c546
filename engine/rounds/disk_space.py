"""Room on the disk: what a campaign takes, what of it can go, and whether a round will fit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from engine.repository import worktree
from harness.errors import EnvironmentFault

NEEDLESS = ("worktrees", "trees", "scratch", "jit")
"""Folders that an engine makes again when it needs them; the record and the clone stay."""
RESERVE_BYTES = 8 << 20
"""Of the disk, for what a round writes into the journal, the clone and the records."""
MIB = 1 << 20
COPIES_A_SLOT = 2
"""Of the project's files: the worktree, and the tree that its candidate makes."""
COPIES_A_CARD = 4
"""Both sides of a comparison, the tests', and what a build adds to them."""


def used(folder: Path) -> int:
    """Return the bytes that a folder's files take on disk; links are not followed."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for where, _, names in os.walk(folder) if not folder.is_symlink() else ():
        for name in names:
            try:
                found = (Path(where) / name).lstat()
            except OSError:
                continue  # it was deleted meanwhile
            if found.st_nlink > 1:
                if (found.st_dev, found.st_ino) in seen:
                    continue
                seen.add((found.st_dev, found.st_ino))
            total += found.st_blocks * 512
    return total


def needless(folder: Path) -> Iterator[Path]:
    """Yield what of an ended campaign's folder can go; a link in its place is nothing of ours."""
    for name in NEEDLESS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            yield path
    yield from (path for path in (folder / "repo.git" / "kopt").glob("index-*") if path.is_dir())


def trim(folder: Path, keep: Collection[str]) -> int:
    """Delete checkouts of a campaign between two rounds, but for these trees; returns the bytes.

    What is wanted again is checked out again.
    """
    freed = 0
    for path in (*_below(folder / "trees", keep), *_below(folder / "worktrees")):
        freed += used(path)
        worktree.remove(path)
    return freed


def make_room(folder: Path, *, base_tree: str, slots: int, cards: int = 1,
              keep: Collection[str] = (), most_bytes: int | None = None) -> str:
    """See that a round of so many slots fits; returns a line if something had to go for it.

    `most_bytes` is what the campaign's folder may take. Raises EnvironmentFault, in one line, if
    there is less room than a round needs.
    """
    wanted = need(folder, base_tree=base_tree, slots=slots, cards=cards)
    freed = trim(folder, {base_tree, *keep})
    free = shutil.disk_usage(folder).free
    if free < wanted + RESERVE_BYTES:
        freed += _clear(folder / "scratch")
        free = shutil.disk_usage(folder).free
    if free < wanted + RESERVE_BYTES:
        raise EnvironmentFault(
            f"a round of {slots} slots needs about {mib(wanted + RESERVE_BYTES)}, and "
            f"{mib(free)} are free", where=str(folder),
            fix="free some space (kopt prune removes what ended campaigns left), then resume")
    if most_bytes is not None and (taken := used(folder)) + wanted > most_bytes:
        freed += _clear(folder / "scratch")
        if (taken := used(folder)) + wanted > most_bytes:
            raise EnvironmentFault(
                f"the campaign takes {mib(taken)} and its next round about {mib(wanted)}, and "
                f"its budget is {mib(most_bytes)}", where=str(folder),
                fix="raise the budget, or use fewer slots, then resume")
    return f"removed {mib(freed)} of checkouts that are no longer needed" \
        if freed >= TOLD_BYTES else ""


TOLD_BYTES = 64 * MIB
"""Less than that is not worth a line."""


def need(folder: Path, *, base_tree: str, slots: int, cards: int = 1) -> int:
    """Return about how many bytes a round takes while it runs."""
    tree, warm = used(folder / "trees" / base_tree), used(folder / "jit")
    return (COPIES_A_SLOT * slots + COPIES_A_CARD * cards) * tree + (slots + 2 * cards) * warm


def _below(folder: Path, keep: Collection[str] = ()) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in sorted(folder.iterdir()) if path.name not in keep)


def _clear(folder: Path) -> int:
    freed = 0
    for path in _below(folder):
        freed += used(path)
        worktree.remove(path)
    return freed


def mib(count: int) -> str:
    """Say how many bytes that is."""
    return f"{count / 1024 / MIB:.1f} GiB" if count >= 10 << 30 else f"{count / MIB:.0f} MiB"
