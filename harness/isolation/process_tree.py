"""List, stop and resume all descendants of a process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

STILL = "TtDZX"
"""States of processes that, once signalled, do nothing until they are resumed."""
MOST_ROUNDS, MOST_POLLS = 4, 32
"""Some kernels do not report that a process is stopped."""


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants, nearest generation first."""
    pids: list[int] = []
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in _children(parent)]
        pids += generation
    return pids


def stop(pid: int, known: Iterable[int] = ()) -> set[int]:
    """Stop all descendants, including those that start meanwhile or are woken by others.

    `known` descendants are stopped first, within microseconds. Returns the pids of all.
    """
    signalled = set(known)
    for child in signalled:
        _signal(child, signal.SIGSTOP)
    for _ in range(MOST_ROUNDS):
        _await_still(signalled)
        running = [child for child in descendants(pid)
                   if child not in signalled or _state(child) not in STILL]
        if not running:
            break
        for child in running:
            _signal(child, signal.SIGSTOP)
        signalled.update(running)
    return signalled


def await_any_still(pids: Iterable[int]) -> None:
    """Wait for a moment until one of several processes is still, as one that stops itself."""
    _poll(lambda: any(_state(pid) in STILL for pid in pids))


def _await_still(pids: Iterable[int]) -> None:
    """Wait for a moment until signalled processes are still: that costs less than to list all."""
    _poll(lambda: all(_state(pid) in STILL for pid in pids))


def _poll(holds: Callable[[], bool]) -> None:
    for _ in range(MOST_POLLS):
        if holds():
            break
        os.sched_yield()


def _state(pid: int) -> str:
    """Return the state of a process as /proc has it; X if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def resume(pids: Iterable[int]) -> None:
    """Let processes run that were stopped."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


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
