"""Room on the disk while workers write: one that writes more than there is room for is ended."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.rounds import disk_space

BEAT_S = 5.0
SHARE = 20
"""Looking takes no more than one in so many parts of the time."""

log = logging.getLogger("kopt.engine")


@dataclass(eq=False)
class WatchedSlot:
    """A slot at work: what ends it, where it writes, and why it was ended here, if it was."""

    places: Sequence[Path]
    cancel: threading.Event = field(default_factory=threading.Event)
    before: int = 0
    why: str = ""

    @property
    def written(self) -> int:
        return max(0, sum(map(disk_space.used, self.places)) - self.before)


class DiskWatch:
    """Looks after the slots of one round; `most_bytes` is what the campaign's folder may take."""

    def __init__(self, folder: Path, most_bytes: int | None, *,
                 beat_s: float | None = None) -> None:
        self._folder, self._most = folder, most_bytes
        self._beat_s = BEAT_S if beat_s is None else beat_s
        self._lock = threading.Lock()
        self._slots: list[WatchedSlot] = []
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="disk", daemon=True).start()

    def stop(self) -> None:
        """End all slots, those too that begin now."""
        with self._lock:
            self._ended.set()
            for slot in self._slots:
                slot.cancel.set()

    @contextmanager
    def slot(self, *places: Path) -> Iterator[WatchedSlot]:
        """Watch a slot that writes to these places, for as long as the block lasts."""
        watched = WatchedSlot(places)
        watched.before = watched.written
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
        """End the slot that has written most, where the slots have written too much."""
        over, told = self._over()
        if over <= 0:
            return
        with self._lock:
            slots = list(self._slots)
        if any(slot.why for slot in slots):
            return  # what it has written is going
        written = [(slot.written, slot) for slot in slots]
        if sum(count for count, _ in written) < over:
            return  # it is not of their doing: the next round is told
        count, most = max(written, key=lambda one: one[0])
        most.why = f"ended: it has written {disk_space.mib(count)}, and {told}"
        most.cancel.set()

    def _over(self) -> tuple[int, str]:
        """Return by how many bytes there is too little room, and a word on it."""
        free = shutil.disk_usage(self._folder).free
        if free < disk_space.RESERVE_BYTES:
            return disk_space.RESERVE_BYTES - free, f"{disk_space.mib(free)} are free on the disk"
        if self._most is None:
            return 0, ""
        taken = disk_space.used(self._folder)
        return taken - self._most, (f"the campaign takes {disk_space.mib(taken)} of the "
                                    f"{disk_space.mib(self._most)} of budget.disk_gb")

    def _watch(self) -> None:
        pause = self._beat_s
        while not self._ended.wait(pause):
            began = time.monotonic()
            try:
                self.look()
            except OSError as error:
                log.warning("the disk cannot be looked at: %s", error)
            pause = max(self._beat_s, SHARE * (time.monotonic() - began))
