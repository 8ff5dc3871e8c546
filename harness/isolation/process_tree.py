"""List, stop and resume all descendants of a process, and read how long they ran."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

STILL = "TtDZX"
"""States in which a process that was sent SIGSTOP does nothing until it is resumed."""
MOST_ROUNDS, MOST_POLLS = 4, 32
"""Limits of the waiting, since some operating-system kernels never report a process as stopped."""
SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class CpuTime:
    """The time of a main thread on a core, and how often it slept or stopped."""

    busy_ns: int
    sleeps: int


def cpu_times(pids: Iterable[int]) -> dict[int, CpuTime]:
    """Return the CPU time of processes; leave out those for which it is unknown.

    It is exact only while a process does not run.
    """
    times = {}
    for pid in pids:
        with contextlib.suppress(ValueError, IndexError):
            busy_ns = int(_text(f"/proc/{pid}/schedstat").split()[0])
            if busy_ns and (slept := SWITCHES.search(_text(f"/proc/{pid}/status"))):
                times[pid] = CpuTime(busy_ns, int(slept[1]))
    return times


def busiest(before: Mapping[int, CpuTime], after: Mapping[int, CpuTime]) -> CpuTime | None:
    """Return the CPU time since `before` of the process that was busiest; None if unknown."""
    none = CpuTime(0, 0)
    return max((CpuTime(now.busy_ns - then.busy_ns, now.sleeps - then.sleeps)
                for pid, now in after.items() for then in [before.get(pid, none)]),
               key=lambda time: time.busy_ns, default=None)


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
    """Wait briefly until one of several processes has stopped itself."""
    _poll(lambda: any(_state(pid) in STILL for pid in pids))


def _await_still(pids: Iterable[int]) -> None:
    """Wait briefly until signalled processes are still: cheaper than listing all descendants."""
    _poll(lambda: all(_state(pid) in STILL for pid in pids))


def _poll(holds: Callable[[], bool]) -> None:
    for _ in range(MOST_POLLS):
        if holds():
            break
        os.sched_yield()


def _state(pid: int) -> str:
    """Return the state of a process as /proc has it; X if it is gone."""
    return (_text(f"/proc/{pid}/stat").rpartition(")")[2].split() or "X")[0]


def resume(pids: Iterable[int]) -> None:
    """Resume stopped processes."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    threads: list[str] = []
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    return [int(word) for thread in threads
            for word in _text(f"/proc/{pid}/task/{thread}/children").split()]


def _text(path: str) -> str:
    """Return a file's text, "" if its process has ended."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
