"""Everything that runs below the supervisor: found in /proc, signalled, counted.

Standard library only.
"""

from __future__ import annotations

import os
import resource


def descendants() -> dict[int, str]:
    """Return pid -> state letter of every process below this one."""
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
    found: dict[int, str] = {}
    frontier = {os.getpid()}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier}
        found.update((pid, parents[pid][1]) for pid in frontier)
    return found


def signal_all(number: int) -> int:
    """Signal every descendant, the lowest first: a guard within this one outlives its job."""
    count = 0
    for pid, state in reversed(descendants().items()):
        if state in "ZX":
            continue
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
