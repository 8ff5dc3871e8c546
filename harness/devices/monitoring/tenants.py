"""Which kopts work on a card, and which of its processes are none of theirs.

A tenant holds a shared `flock` on its card's file and has its pid there, with when it began: a pid
that is given again is somebody else's. The next one that is alone empties the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.devices.monitoring import foreign_processes
from harness.errors import EnvironmentFault
from harness.isolation import device_lock, process_tree

TRIES = 50
MOST_BYTES = 1 << 20


@contextmanager
def registered(device: str) -> Iterator[None]:
    """Be known, until the block ends, as a kopt that works on a device by its lock.

    Raises EnvironmentFault if that cannot be, since somebody keeps everybody out.
    """
    fd = _entered(f"{device}.tenants")
    try:
        ours = _line(os.getpid())
        if ours not in _lines(fd):
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, f"{ours}\n".encode())
        yield
    finally:
        os.close(fd)


def is_in_use(device: str) -> bool:
    """Return whether a kopt is known to work on a device, this one included."""
    fd, _ = device_lock.open_file(f"{device}.tenants")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def registered_pids(device: str) -> set[int] | None:
    """Return the kopts on a device, None where one may have no pid here: another container's."""
    fd, _ = device_lock.open_file(f"{device}.tenants")
    try:
        lines = _lines(fd)
    finally:
        os.close(fd)
    here, found = str(_namespace()), set[int]()
    for fields in (line.split() for line in lines):
        if len(fields) != 3 or not all(field.isdigit() for field in fields):
            continue
        if fields[2] != here:
            return None
        pid = int(fields[0])
        if _began(pid) == int(fields[1]):
            found.add(pid)
    return found


class StrangerDetector:
    """Tells, on one card, strangers from kopts: this one, the tenants, and all that they started.

    Pids mean what they say once one of them has been listed, or where they are the machine's own.
    """

    def __init__(self, device: str,
                 ours: Callable[[], set[int]] = foreign_processes.own_processes) -> None:
        self._device, self._ours = device, ours
        self._proven = False

    def strangers(self, listed: Iterable[int]) -> set[int]:
        """Return the pids of nobody known, of those listed before; none where none can be told."""
        there = set(listed) - {foreign_processes.UNNAMED}
        known = registered_pids(self._device)
        if known is None or not there:
            return set()
        ours = self._ours() | known | {below for pid in known
                                       for below in process_tree.descendants(pid)}
        first = foreign_processes.in_first_namespace()
        self._proven = self._proven or bool(there & ours)
        if not (self._proven or first):
            return set()
        return {pid for pid in there - ours if first or Path(f"/proc/{pid}").exists()}


def _entered(name: str) -> int:
    """Open and lock a file of tenants, emptied if nobody else has it."""
    for _ in range(TRIES):  # another may be asking just now
        fd, path = device_lock.open_file(name)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            time.sleep(device_lock.POLL_S)
            continue
        if device_lock.is_current(fd, path):
            return fd
        os.close(fd)
    raise EnvironmentFault("somebody keeps every kopt from it",
                           where=str(device_lock.lock_directory() / name))


def _lines(fd: int) -> list[str]:
    return os.pread(fd, MOST_BYTES, 0).decode(errors="replace").splitlines()


def _line(pid: int) -> str:
    return f"{pid} {_began(pid)} {_namespace()}"


def _began(pid: int) -> int:
    """Return when a process began, in ticks since the machine's start; 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
