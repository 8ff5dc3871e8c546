"""List, stop and resume all descendants of a process."""

from __future__ import annotations

import contextlib
import os
import signal


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants, nearest generation first."""
    pids: list[int] = []
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in _children(parent)]
        pids += generation
    return pids


def stop(pid: int) -> None:
    """Stop all descendants, including those that start meanwhile."""
    stopped: set[int] = set()
    while fresh := [child for child in descendants(pid) if child not in stopped]:
        for child in fresh:
            _signal(child, signal.SIGSTOP)
        stopped.update(fresh)


def resume(pid: int) -> None:
    for child in descendants(pid):
        _signal(child, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        return [int(word) for thread in threads for word in _read(pid, thread).split()]
    return []


def _read(pid: int, thread: str) -> str:
    try:
        with open(f"/proc/{pid}/task/{thread}/children") as file:
            return file.read()
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
