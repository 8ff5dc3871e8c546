"""Keeps one process's counts in two files, which survive however the process ends.

One file has lines about the process and each shape that it met, as literals of Python: the program
may shadow the json module. The other is mapped into memory and has one number per shape and thread.
So a call costs an addition, and nothing is left to do at the end.
"""

from __future__ import annotations

import mmap
import os
from _thread import RLock, get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNREAD, OTHER = 0, 1
"""The slots for calls with unreadable arguments, and for calls beyond the last slot."""
FIRST, MOST = 2, 1 << 16
ROOM = mmap.ALLOCATIONGRANULARITY
MOST_NOTES = 20
"""The most notes of one kind."""


def write_line(path: str, value: Any) -> None:
    """Append a value's literal to a file in one write, so that lines of processes never mix."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, (ascii(value) + "\n").encode("ascii"))
    finally:
        os.close(file)


class Tally:
    """Counts calls; an error while counting becomes a note.

    Each thread has its own slots, because incrementing is not atomic. A fork starts from zero.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._parameters: tuple[str, ...] = ()
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._slots: dict[int, dict[Any, int]] = {}
        self._views: list[memoryview] = []
        self._used = FIRST
        self._written: set[tuple[str, str]] = set()
        self._lock = RLock()
        self._path = ""

    def begin(self, parameters: tuple[str, ...]) -> None:
        """Record that the function was found, and which arguments are read."""
        self._parameters = parameters
        if not self._path:
            self._open()
        self._write("loaded", parameters=parameters)

    def add(self, key: Any) -> None:
        """Count one call."""
        try:
            slots = self._slots.get(get_ident())
            if slots is None:
                slots = self._slots[get_ident()] = self._new_thread()
            slot = slots.get(key)
            if slot is None:
                slot = self._slot(key)
                if slot != OTHER:
                    slots[key] = slot
            self._views[slot * 8 // ROOM][slot % (ROOM // 8)] += 1
        except Exception as error:
            self.note(error)

    def _new_thread(self) -> dict[Any, int]:
        with self._lock:
            if not self._path:  # a fork
                self._open()
                self._write("loaded", parameters=self._parameters)
        return {None: UNREAD}

    def _slot(self, key: Any) -> int:
        """Return the slot of a new shape."""
        with self._lock:
            slot = self._used
            if slot >= MOST:
                return OTHER
            try:
                if slot * 8 // ROOM >= len(self._views):
                    self._map(len(self._views))
                self._write("shape", slot=slot, cells=tuple(
                    tuple(map(int, cell)) if isinstance(cell, tuple) else cell for cell in key))
            except Exception as error:
                self.note(error)
                return UNREAD
            self._used += 1
            return slot

    def _open(self) -> None:
        self._path = os.path.join(self._folder, f"{os.getpid()}-{os.urandom(6).hex()}")
        self._map(0)

    def _map(self, number: int) -> None:
        """Map more numbers; the file grows first, because mapped pages must exist on the disk."""
        file = os.open(self._path + ".calls", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.pwrite(file, bytes(ROOM), number * ROOM) < ROOM:
                raise OSError("no room for counts")
            room = mmap.mmap(file, ROOM, offset=number * ROOM)
        finally:
            os.close(file)
        self._views.append(memoryview(room).cast("Q"))

    def note(self, what: Exception | str) -> None:
        """Record an error or a remark, reported at the end."""
        text = what if isinstance(what, str) else f"{type(what).__name__}: {what}"
        self._write_once("note", text[:300])

    def elsewhere(self, file: str) -> None:
        """Record that another file of the same name was loaded."""
        self._write_once("elsewhere", file)

    def _write_once(self, kind: str, text: str) -> None:
        try:
            same_kind = sum(other == kind for other, _ in self._written)
            if (kind, text) in self._written or same_kind >= MOST_NOTES:
                return
            self._written.add((kind, text))
            if not self._path:
                self._open()
            self._write(kind, text=text)
        except Exception:  # the disk is full or the folder is gone
            return

    def _write(self, kind: str, **fields: Any) -> None:
        write_line(self._path + ".lines", {"type": kind, **fields})
