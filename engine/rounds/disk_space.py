"""Disk space: what a campaign takes, what a round may delete, which slot writes too much."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.campaign.setup import Setup
from engine.repository import worktree
from harness.errors import EnvironmentFault
from harness.formats.quantities import data_size

DISPOSABLE = ("worktrees", "trees", "scratch", "jit")
"""Folders that an engine recreates when it needs them; the record and the clone stay."""
RESERVE_BYTES = 8 << 20
"""Space for what a round writes to the journal, the clone and the records."""
NOTICE_BYTES = 64 << 20
"""A smaller clean-up is not worth a line in the log."""
COPIES_PER_SLOT = 2
"""Copies of the project's files: the worktree, and the tree of its candidate."""
COPIES_PER_DEVICE = 4
"""Both sides of a comparison, those of the tests, and what a build adds to them."""

INTERVAL_S = 5.0
IDLE_FACTOR = 20
"""A check of the disk is followed by a pause of at least this many times its duration."""

log = logging.getLogger("kopt.engine")


def limit_of(setup: Setup) -> int | None:
    """Return how many bytes a campaign's folder may take by its budget, None without a limit."""
    limit_gb = setup.manifest.budget.disk_gb
    return None if limit_gb is None else int(limit_gb * 1e9)


def used(folder: Path) -> int:
    """Return the bytes that a folder's files take on disk; links are not followed."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for where, _, names in os.walk(folder) if not folder.is_symlink() else ():
        for name in names:
            try:
                status = (Path(where) / name).lstat()
            except OSError:
                continue  # deleted meanwhile
            if status.st_nlink > 1:
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512
    return total


def disposable(folder: Path) -> Iterator[Path]:
    """Yield what can be deleted from an ended campaign's folder; links are left alone."""
    for name in DISPOSABLE:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            yield path
    yield from (path for path in (folder / "repo.git" / "kopt").glob("index-*") if path.is_dir())


def trim(folder: Path, keep: Collection[str]) -> int:
    """Delete a campaign's checkouts, except `keep`, between rounds; return the freed bytes."""
    return _delete(_entries(folder / "trees", keep)) + _delete(_entries(folder / "worktrees"))


def make_room(folder: Path, *, base_tree: str, slots: int, cards: int = 1,
              keep: Collection[str] = (), limit_bytes: int | None = None) -> str:
    """Make room for a round; return a message if much was deleted. Raises EnvironmentFault."""
    round_bytes = need(folder, base_tree=base_tree, slots=slots, cards=cards)
    freed = trim(folder, {base_tree, *keep})
    free = shutil.disk_usage(folder).free
    if free < round_bytes + RESERVE_BYTES:
        freed += _delete(_entries(folder / "scratch"))
        free = shutil.disk_usage(folder).free
    if free < round_bytes + RESERVE_BYTES:
        raise EnvironmentFault(
            f"a round of {slots} slots needs about {data_size(round_bytes + RESERVE_BYTES)}, but "
            f"only {data_size(free)} are free", where=str(folder),
            fix="free some space (kopt prune removes what ended campaigns left), then kopt resume")
    if limit_bytes is not None and (used_bytes := used(folder)) + round_bytes > limit_bytes:
        freed += _delete(_entries(folder / "scratch"))
        if (used_bytes := used(folder)) + round_bytes > limit_bytes:
            raise EnvironmentFault(
                f"the campaign uses {data_size(used_bytes)}, its next round needs about "
                f"{data_size(round_bytes)}, and its budget is {data_size(limit_bytes)}",
                where=str(folder), fix="raise the budget, or use fewer slots, then kopt resume")
    return f"removed {data_size(freed)} of checkouts that are no longer needed" \
        if freed >= NOTICE_BYTES else ""


def need(folder: Path, *, base_tree: str, slots: int, cards: int = 1) -> int:
    """Estimate how many bytes a round takes while it runs."""
    tree, warm_cache = used(folder / "trees" / base_tree), used(folder / "jit")
    return (COPIES_PER_SLOT * slots + COPIES_PER_DEVICE * cards) * tree \
        + (slots + 2 * cards) * warm_cache


def _entries(folder: Path, keep: Collection[str] = ()) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in sorted(folder.iterdir()) if path.name not in keep)


def _delete(paths: Iterator[Path]) -> int:
    """Delete files and folders; return how many bytes they took."""
    freed = 0
    for path in paths:
        freed += used(path)
        worktree.remove(path)
    return freed


@dataclass(eq=False)
class WatchedSlot:
    """A running slot: where it writes, how to end it, and why it was ended, if it was."""

    places: Sequence[Path]
    cancel: threading.Event = field(default_factory=threading.Event)
    before_bytes: int = 0
    reason: str = ""

    @property
    def written_bytes(self) -> int:
        return max(0, sum(map(used, self.places)) - self.before_bytes)


class DiskWatch:
    """Watches the slots of one round; the campaign's folder may take `limit_bytes`."""

    def __init__(self, folder: Path, limit_bytes: int | None, *,
                 interval_s: float | None = None) -> None:
        self._folder, self._limit_bytes = folder, limit_bytes
        self._interval_s = INTERVAL_S if interval_s is None else interval_s
        self._lock = threading.Lock()
        self._slots: list[WatchedSlot] = []
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="disk", daemon=True).start()

    def stop(self) -> None:
        """Cancel all slots, also those that begin later."""
        with self._lock:
            self._ended.set()
            for slot in self._slots:
                slot.cancel.set()

    @contextmanager
    def slot(self, *places: Path) -> Iterator[WatchedSlot]:
        """Watch a slot that writes to these paths, until the `with` block ends."""
        watched = WatchedSlot(places)
        watched.before_bytes = watched.written_bytes
        with self._lock:
            self._slots.append(watched)
            if self._ended.is_set():
                watched.cancel.set()
        try:
            yield watched
        finally:
            with self._lock:
                self._slots.remove(watched)

    def look(self) -> None:
        """End the slot that has written most, if space is short because of what slots wrote."""
        excess_bytes, shortage = self._shortage()
        if excess_bytes <= 0:
            return
        with self._lock:
            slots = list(self._slots)
        if any(slot.reason for slot in slots):
            return  # the files of an ended slot are being deleted
        written = [(slot.written_bytes, slot) for slot in slots]
        if sum(count for count, _ in written) < excess_bytes:
            return  # the slots are not the cause: the start of the next round reports it
        count, largest = max(written, key=lambda pair: pair[0])
        largest.reason = f"ended: it has written {data_size(count)}, and {shortage}"
        largest.cancel.set()

    def _shortage(self) -> tuple[int, str]:
        """Return how many bytes are missing, zero or less if none, and a description."""
        free = shutil.disk_usage(self._folder).free
        if free < RESERVE_BYTES:
            return RESERVE_BYTES - free, f"{data_size(free)} are free on the disk"
        if self._limit_bytes is None:
            return 0, ""
        used_bytes = used(self._folder)
        return used_bytes - self._limit_bytes, (
            f"the campaign uses {data_size(used_bytes)} of the "
            f"{data_size(self._limit_bytes)} of budget.disk_gb")

    def _watch(self) -> None:
        pause_s = self._interval_s
        while not self._ended.wait(pause_s):
            began = time.monotonic()
            try:
                self.look()
            except OSError as error:
                log.warning("free disk space cannot be measured: %s", error)
            pause_s = max(self._interval_s, IDLE_FACTOR * (time.monotonic() - began))
