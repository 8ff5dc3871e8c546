"""Which kopt processes use a card, and which processes on it belong to none of them.

A user of a card holds a shared `flock` on the card's file, which lists its pid and start time (a
pid that is reused has another start time). The first user after a time without any empties the
file.
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
    """Register this process as a user of the device (a lock name) until the block ends.

    Raises EnvironmentFault if another process holds the file exclusively.
    """
    fd = _lock_shared(f"{device}.tenants")
    try:
        own_line = _line(os.getpid())
        if own_line not in _lines(fd):
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, f"{own_line}\n".encode())
        yield
    finally:
        os.close(fd)


def is_in_use(device: str) -> bool:
    """Return whether any kopt process, this one included, is registered on a device."""
    fd, _ = device_lock.open_file(f"{device}.tenants")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def registered_pids(device: str) -> set[int] | None:
    """Return the pids of a device's users; None if one is of another pid namespace (a container).
    """
    fd, _ = device_lock.open_file(f"{device}.tenants")
    try:
        lines = _lines(fd)
    finally:
        os.close(fd)
    here, pids = str(_namespace()), set[int]()
    for fields in (line.split() for line in lines):
        if len(fields) != 3 or not all(field.isdigit() for field in fields):
            continue
        if fields[2] != here:
            return None
        pid = int(fields[0])
        if _start_ticks(pid) == int(fields[1]):
            pids.add(pid)
    return pids


class StrangerDetector:
    """Finds the processes on one card that no kopt started.

    Processes of kopt are this one, the registered ones, and their descendants. Listed pids identify
    processes once one of these has been listed, or if this is the first pid namespace.
    """

    def __init__(self, device: str,
                 ours: Callable[[], set[int]] = foreign_processes.own_processes) -> None:
        self._device, self._ours = device, ours
        self._proven = False

    def strangers(self, listed: Iterable[int]) -> set[int]:
        """Return the listed pids that no kopt started; empty if they cannot be distinguished."""
        listed_pids = set(listed) - {foreign_processes.UNNAMED}
        users = registered_pids(self._device)
        if users is None or not listed_pids:
            return set()
        known = self._ours() | users | {below for pid in users
                                        for below in process_tree.descendants(pid)}
        first = foreign_processes.in_first_namespace()
        self._proven = self._proven or bool(listed_pids & known)
        if not (self._proven or first):
            return set()
        return {pid for pid in listed_pids - known if first or Path(f"/proc/{pid}").exists()}


def _lock_shared(name: str) -> int:
    """Open and lock a file of users; empty it if no other process holds it."""
    for _ in range(TRIES):  # `is_in_use` of another process holds the file for an instant
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
    raise EnvironmentFault("another process holds the lock exclusively",
                           where=str(device_lock.lock_directory() / name))


def _lines(fd: int) -> list[str]:
    return os.pread(fd, MOST_BYTES, 0).decode(errors="replace").splitlines()


def _line(pid: int) -> str:
    return f"{pid} {_start_ticks(pid)} {_namespace()}"


def _start_ticks(pid: int) -> int:
    """Return a process's start time in clock ticks since boot; 0 if it does not exist."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
