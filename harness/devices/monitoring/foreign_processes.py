"""Find the processes on a card that are not ours, from the pids that its driver lists.

A driver may list pids of this process namespace, pids of the host's, one pid for a whole sandbox,
or 0. The pids identify processes only once one of ours has appeared among them. Until then a
process counts as foreign only when more processes are listed than we run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.isolation import process_tree, zygote_client

FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of Linux's first pid namespace. In any other one, a driver hides the pids outside."""
UNNAMED = 0
"""The pid recorded for a foreign process without a pid in this namespace."""
NOT_LISTED = "the driver does not list the card's processes"
BY_NUMBER = "none of our pids is listed: foreign processes are found by number, not by pid"
HIDDEN = "processes outside this container may not be listed"
_ONE = frozenset({UNNAMED})


@dataclass(frozen=True, kw_only=True, slots=True)
class CardProcesses:
    """The processes on a card at one moment; `nameless` counts pids unknown in this namespace.

    `allowed` is the largest number of processes that can be ours. `listed` is False if the driver
    lists none.
    """

    ours: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()
    nameless: int = 0
    allowed: int = 0
    listed: bool = True

    def foreign(self, proven: bool) -> frozenset[int]:
        """Return the foreign pids; `proven` says that listed pids are pids of this namespace."""
        if proven:
            has_unknown = len(self.ours) + self.nameless > self.allowed
            return self.others | (_ONE if self.nameless and has_unknown else frozenset())
        total = len(self.ours) + len(self.others) + self.nameless
        return _ONE if total > self.allowed else frozenset()


class ProcessClassifier:
    """Divides listed pids into ours and others.

    A process once known as ours stays ours until it is no longer listed: a killed runner leaves the
    process tree before it leaves the list. `runners` returns how many of our processes may be on
    the card.
    """

    def __init__(self, ours: Callable[[], set[int]], runners: Callable[[], int]) -> None:
        self._find, self._runners = ours, runners
        self._ours: set[int] = set()
        self._others: set[int] = set()
        self.proven = False

    def classify(self, pids: tuple[int, ...] | None) -> CardProcesses:
        """Return the listed processes by owner; None means that they cannot be listed."""
        if pids is None:
            return CardProcesses(listed=False)
        listed = set(pids) - {UNNAMED}  # a driver may list a process once for each of its clients
        self._ours &= listed
        self._others &= listed
        new = {pid for pid in listed - self._ours - self._others if _exists(pid)}
        if new:
            ours = new & self._find()
            self._ours |= ours
            self._others |= {pid for pid in new - ours if _exists(pid)}
        self.proven = self.proven or bool(self._ours)
        nameless = len(listed - self._ours - self._others) + pids.count(UNNAMED)
        return CardProcesses(ours=frozenset(self._ours), others=frozenset(self._others),
                             nameless=nameless, allowed=self._runners())

    def foreign(self, observations: Iterable[CardProcesses]) -> tuple[tuple[int, ...], str]:
        """Return the foreign pids in these observations, and why some may be missing."""
        seen = list(observations)
        pids = {pid for processes in seen for pid in processes.foreign(self.proven)}
        return tuple(sorted(pids)), self._doubt(seen)

    def _doubt(self, seen: list[CardProcesses]) -> str:
        if not all(processes.listed for processes in seen):
            return NOT_LISTED
        if not self.proven:
            return BY_NUMBER
        return "" if in_first_namespace() else HIDDEN


def own_processes() -> set[int]:
    """Return the pids of this process, its supervisors (also forked ones) and all below them."""
    roots = {os.getpid(), *zygote_client.forked_pids()}
    return roots | {pid for root in roots for pid in process_tree.descendants(root)}


def in_first_namespace() -> bool:
    """Return whether this process sees the pids of the whole machine."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == FIRST_NAMESPACE
    except OSError:
        return False


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
