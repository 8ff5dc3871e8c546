"""Everything that runs below the supervisor: found in /proc, signalled, counted.

Standard library only.
"""

from __future__ import annotations

import os
import resource


def descendants() -> dict[int, str]:
    """Return pid -> state letter of every process below this one, the highest first."""
    return {pid: state for pid, (_, state) in _below().items()}


def _below() -> dict[int, tuple[int, str]]:
    """Return pid -> (parent, state letter), the highest first."""
    parents: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        parents[int(name)] = (int(fields[1]), fields[0].decode())
    found: dict[int, tuple[int, str]] = {}
    frontier = {os.getpid()}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier}
        found.update((pid, parents[pid]) for pid in frontier)
    return found


def signal_all(number: int, *, lowest: bool = False) -> int:
    """Signal every living descendant, or only the `lowest`; returns how many.

    Killing takes a while. A guard within this one must outlive its job, or the device lock that
    it holds would be free too early: so the lowest are killed, and once they are gone the next.
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
    """Return (resident bytes, number of processes) of everything below this one."""
    total = 0
    found = descendants()
    for pid in found:
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError):
            continue
    return total * resource.getpagesize(), len(found)
