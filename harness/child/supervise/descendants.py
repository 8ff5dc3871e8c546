"""Finds, signals and counts the descendants of the supervisor. Standard library only."""

from __future__ import annotations

import os
import resource


def descendants() -> dict[int, str]:
    """Return pid -> state letter of every descendant of this process, parents first."""
    return {pid: state for pid, (_, state) in _below().items()}


def _below() -> dict[int, tuple[int, str]]:
    """Return pid -> (parent, state letter) of every descendant, parents first."""
    own_pid = os.getpid()
    parents = {} if os.path.exists(f"/proc/self/task/{own_pid}/children") else _parents()
    below: dict[int, tuple[int, str]] = {}
    frontier = {own_pid}
    while frontier:
        nearest = {pid: parent for parent in frontier
                   for pid in (_children(parent) if not parents else parents.get(parent, ()))}
        below.update((pid, (parent, state)) for pid, parent in nearest.items()
                     if (state := _stat(pid)[0]))
        frontier = nearest.keys() & below.keys()
    return below


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process, from the kernel's lists.

    Scanning every process of the machine instead costs 5 % of a core.
    """
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    except OSError:
        pass  # the process or one of its threads has ended; callers that kill look again
    return children


def _parents() -> dict[int, list[int]]:
    """Return parent -> children of every process, for kernels without children lists."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(_stat(int(name))[1], []).append(int(name))
    return children


def _stat(pid: int) -> tuple[str, int]:
    """Return the state letter and the parent of a process, "" and 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b") ", 1)[1].split()
    except (OSError, IndexError):
        return "", 0
    return fields[0].decode(), int(fields[1])


def signal_all(number: int, *, lowest: bool = False) -> int:
    """Signal every living descendant, or only the leaves (`lowest`); return how many.

    Killing takes time. A nested guard must outlive its job, or it would release its device lock
    too early. So callers kill the leaves first, and their parents once the leaves are gone.
    """
    living = {pid: parent for pid, (parent, state) in _below().items() if state not in "ZX"}
    count = 0
    for pid in living.keys() - set(living.values()) if lowest else list(living)[::-1]:
        try:
            os.kill(pid, number)
            count += 1
        except ProcessLookupError:
            pass
    return count


def usage() -> tuple[int, int]:
    """Return (resident bytes, number of processes) of all descendants of this process.

    Memory that several processes share counts once for each: see `shared_once`.
    """
    pids = descendants()
    return sum(map(_resident, pids)), len(pids)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def shared_once() -> int:
    """Return the resident bytes of all descendants, shared memory split among its users.

    The kernel takes milliseconds to add them up for a large process.
    """
    total = 0
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) << 10 for line in file
                              if line.startswith("Pss:"))
        except (OSError, StopIteration):
            total += _resident(pid)
    return total
