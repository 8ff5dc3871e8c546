"""Which processes use a card: our own, those of other kopts, and those that no kopt started.

A kopt that uses a card holds a shared `flock` on the card's file, which lists its pid and start
time (a pid that is reused has another start time). The first user after a time without any empties
the file.

A driver may list pids of this process namespace, pids of the host's, one pid for a whole sandbox,
or 0. The pids identify processes only once one of ours has appeared among them. Until then a
process counts as foreign only when more processes are listed than we run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.devices.device import DeviceProcess
from harness.errors import EnvironmentFault
from harness.isolation import device_lock, process_tree, zygote_client

TRIES = 50
MOST_BYTES = 1 << 20
FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of Linux's first pid namespace. In any other one, a driver hides the pids outside."""
UNNAMED = 0
"""The pid recorded for a foreign process without a pid in this namespace."""
NOT_LISTED = "the driver does not list the card's processes"
BY_NUMBER = "kopt's own pids are not listed: foreign processes are detected by count, not by pid"
HIDDEN = "processes outside this container may not be listed"


@contextmanager
def registered(device: str) -> Iterator[None]:
    """Register this process as a user of a device (a lock name). Raises EnvironmentFault."""
    fd = _lock_shared(f"{device}.tenants")
    try:
        own_line = f"{os.getpid()} {_start_ticks(os.getpid())} {_namespace()}"
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
    """Return the pids of a device's running users; None if one is in another pid namespace."""
    fd, _ = device_lock.open_file(f"{device}.tenants")
    try:
        lines = _lines(fd)
    finally:
        os.close(fd)
    namespace, pids = str(_namespace()), set[int]()
    for fields in (line.split() for line in lines):
        if len(fields) != 3 or not all(field.isdigit() for field in fields):
            continue
        if fields[2] != namespace:
            return None
        pid = int(fields[0])
        if _start_ticks(pid) == int(fields[1]):
            pids.add(pid)
    return pids


def own_processes() -> set[int]:
    """Return the pids of this process, its supervisors (also forked ones) and all below them."""
    return _with_descendants({os.getpid(), *zygote_client.forked_pids()})


def own_is_listed(listed: Iterable[DeviceProcess] | None) -> bool:
    """Return whether a card's driver lists a process of ours by its pid in this namespace."""
    return not own_processes().isdisjoint(process.pid for process in listed or ())


def in_first_namespace() -> bool:
    """Return whether this process sees the pids of the whole machine."""
    return _namespace() == FIRST_NAMESPACE


class StrangerDetector:
    """Finds the processes on one card that no kopt started.

    Processes of kopt are this one, the registered ones, the supervisor of a `kept` oracle (0 for
    none), and their descendants. Listed pids identify processes once one of these has been listed,
    or if this is the first pid namespace.
    """

    def __init__(self, device: str, kept: Callable[[], int] = lambda: 0) -> None:
        self._device, self._kept = device, kept
        self._proven = False

    def strangers(self, listed: Iterable[int]) -> set[int]:
        """Return the listed pids that no kopt started; empty if they cannot be distinguished."""
        listed_pids = set(listed) - {UNNAMED}
        users = registered_pids(self._device)
        if users is None or not listed_pids:
            return set()
        known = own_processes() | _with_descendants(users | {self._kept()} - {0})
        first = in_first_namespace()
        self._proven = self._proven or bool(listed_pids & known)
        if not (self._proven or first):
            return set()
        return {pid for pid in listed_pids - known if first or _exists(pid)}


@dataclass(frozen=True, kw_only=True, slots=True)
class CardProcesses:
    """The processes on a card at one moment; `nameless` counts pids unknown in this namespace."""

    ours: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()
    nameless: int = 0
    listed: bool = True
    """False if the driver cannot list processes."""


class ProcessClassifier:
    """Divides listed pids into ours and others.

    A process once known as ours stays ours until it is no longer listed: a killed runner leaves the
    process tree before it leaves the list. At most `runners` of our processes are on the card.
    """

    def __init__(self, runners: int) -> None:
        self._runners = runners
        self._ours: set[int] = set()
        self._others: set[int] = set()
        self._proven = False
        """Whether listed pids are pids of this namespace."""

    def classify(self, pids: tuple[int, ...] | None) -> CardProcesses:
        """Return the listed processes by owner; None means that they cannot be listed."""
        if pids is None:
            return CardProcesses(listed=False)
        listed = set(pids) - {UNNAMED}  # a driver may list a process once for each of its clients
        self._ours &= listed
        self._others &= listed
        new = {pid for pid in listed - self._ours - self._others if _exists(pid)}
        if new:
            ours = new & own_processes()
            self._ours |= ours
            self._others |= {pid for pid in new - ours if _exists(pid)}
        self._proven = self._proven or bool(self._ours)
        nameless = len(listed - self._ours - self._others) + pids.count(UNNAMED)
        return CardProcesses(ours=frozenset(self._ours), others=frozenset(self._others),
                             nameless=nameless)

    def foreign(self, observations: Iterable[CardProcesses]) -> tuple[tuple[int, ...], str]:
        """Return the foreign pids in these observations, and why some may be missing."""
        seen = list(observations)
        pids = {pid for processes in seen for pid in self._foreign(processes)}
        if not all(processes.listed for processes in seen):
            doubt = NOT_LISTED
        elif not self._proven:
            doubt = BY_NUMBER
        else:
            doubt = "" if in_first_namespace() else HIDDEN
        return tuple(sorted(pids)), doubt

    def _foreign(self, seen: CardProcesses) -> Set[int]:
        named = len(seen.others) if not self._proven else 0
        too_many = len(seen.ours) + named + seen.nameless > self._runners
        if self._proven:
            return seen.others | ({UNNAMED} if seen.nameless and too_many else set())
        return {UNNAMED} if too_many else set()


def _lock_shared(name: str) -> int:
    """Lock a file of users in shared mode, and empty it if no other process holds it.

    Raises EnvironmentFault if another process keeps it locked exclusively.
    """
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


def _with_descendants(pids: set[int]) -> set[int]:
    return pids | {below for pid in pids for below in process_tree.descendants(pid)}


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
