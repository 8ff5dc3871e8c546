"""Which processes on a card are not ours, told from the pids that its driver lists.

A driver may list pids of this process namespace, pids of the host's, one pid for a whole sandbox,
or 0. Pids tell who is who only once one of ours has been seen among them; until then a process
is foreign only when more of them are listed than we run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.isolation import process_tree, zygote_client

FIRST_NAMESPACE = 0xEFFFFFFC
"""The inode of Linux's first pid namespace; from any other, a driver hides the pids outside."""
UNNAMED = 0
"""Stands for a foreign process that is there but has no pid here."""
NOT_LISTED = "the card's processes are not listed"
BY_NUMBER = "none of ours is among the listed pids: processes are counted, not told apart"
HIDDEN = "processes outside of this container may not be listed"
_ONE = frozenset({UNNAMED})


@dataclass(frozen=True, kw_only=True, slots=True)
class CardProcesses:
    """Who computes on a card at one moment; `nameless` counts pids that nobody here has.

    `allowed` is how many of the processes may be ours. `listed` is False when none can be told.
    """

    ours: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()
    nameless: int = 0
    allowed: int = 0
    listed: bool = True

    def foreign(self, proven: bool) -> frozenset[int]:
        """Return the foreign pids; `proven` says that the driver's pids are those seen here."""
        if proven:
            unknown = len(self.ours) + self.nameless > self.allowed
            return self.others | (_ONE if self.nameless and unknown else frozenset())
        total = len(self.ours) + len(self.others) + self.nameless
        return _ONE if total > self.allowed else frozenset()


class ProcessClassifier:
    """Sorts listed pids into ours and others.

    A process that was ours stays so until it is no longer listed: a killed runner leaves the list
    later than its family. `runners` says how many of our processes may be on the card.
    """

    def __init__(self, ours: Callable[[], set[int]], runners: Callable[[], int]) -> None:
        self._find, self._runners = ours, runners
        self._ours: set[int] = set()
        self._others: set[int] = set()
        self.proven = False

    def look(self, pids: tuple[int, ...] | None) -> CardProcesses:
        """Return who the listed pids are; None says that they cannot be listed."""
        if pids is None:
            return CardProcesses(listed=False)
        listed = set(pids) - {UNNAMED}  # a driver may list a process once for each of its clients
        self._ours &= listed
        self._others &= listed
        fresh = {pid for pid in listed - self._ours - self._others if _exists(pid)}
        if fresh:
            mine = fresh & self._find()
            self._ours |= mine
            self._others |= {pid for pid in fresh - mine if _exists(pid)}
        self.proven = self.proven or bool(self._ours)
        nameless = len(listed - self._ours - self._others) + pids.count(UNNAMED)
        return CardProcesses(ours=frozenset(self._ours), others=frozenset(self._others),
                       nameless=nameless, allowed=self._runners())

    def foreign(self, companies: Iterable[CardProcesses]) -> tuple[tuple[int, ...], str]:
        """Return the foreign pids among `companies`, and why some could not be told."""
        seen = list(companies)
        found = {pid for one in seen for pid in one.foreign(self.proven)}
        return tuple(sorted(found)), self._doubt(seen)

    def _doubt(self, seen: list[CardProcesses]) -> str:
        if not all(one.listed for one in seen):
            return NOT_LISTED
        if not self.proven:
            return BY_NUMBER
        return "" if in_first_namespace() else HIDDEN


def own_processes() -> set[int]:
    """Return this process, its supervisors and those forked for it, and everything below them."""
    roots = {os.getpid(), *zygote_client.forked_pids()}
    return roots | {pid for root in roots for pid in process_tree.descendants(root)}


def in_first_namespace() -> bool:
    """Tell whether this process sees the pids of the whole machine."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == FIRST_NAMESPACE
    except OSError:
        return False


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
