"""Timed blocks: what a runner reports of one, and what others measured of it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median, quantiles

from harness.isolation.process_tree import CpuTime

CALM = 0.01
"""A block is calm if its main thread was on no core for at most this share of its time."""


@dataclass(frozen=True)
class TimedBlock:
    """One timed block: `calls` took `ns` by the runner's clock, `elapsed_ns` until the answer.

    `asked_ns` is the time of the request (perf_counter_ns), `store_ns` how long the runner took
    afterwards to copy what the calls returned, by our clock, `sample_ns` how long the oracle then
    took to read a sample of the outputs from a GPU. `stamped_ns` is the time between the messages
    at the start and the end of the calls, as the operating system stamped them; 0 without stamps.
    `cpu` is the CPU time of the runner's main thread, by the operating system; None on a GPU, or if
    the runner cannot be stopped.
    """

    calls: int
    ns: int
    elapsed_ns: int
    asked_ns: int = 0
    store_ns: int = 0
    sample_ns: int = 0
    stamped_ns: int = 0
    cpu: CpuTime | None = None

    @property
    def scored_ns(self) -> int:
        """The time that counts: on the CPU the longer of `ns` and `stamped_ns`, on a GPU `ns`."""
        return max(self.ns, self.stamped_ns) if self.cpu else self.ns

    @property
    def late_ns(self) -> int:
        return self.store_ns + self.sample_ns

    @property
    def gap_ns(self) -> int:
        """Time outside `ns`, by the stamps or else by our clock, which includes both wake-ups."""
        return (self.stamped_ns or self.elapsed_ns) - self.ns

    @property
    def cpu_gap_ns(self) -> int:
        return self.cpu.busy_ns - self.ns if self.cpu else self.gap_ns

    @property
    def idle(self) -> float:
        """The share of the time in which the main thread was on no core; 0 without CPU times."""
        return 1.0 - self.cpu.busy_ns / self.ns if self.cpu else 0.0


Time = Callable[[TimedBlock], int]
GAP: Time = attrgetter("gap_ns")
REPORTED: Time = attrgetter("ns")
ELAPSED: Time = attrgetter("elapsed_ns")
STORE: Time = attrgetter("store_ns")
LATE: Time = attrgetter("late_ns")
BUSY: Time = attrgetter("cpu.busy_ns")


def usual_cost_ns(blocks: Iterable[TimedBlock]) -> float | None:
    """Return the CPU time that blocks take beyond what they report; None if no block is calm.

    A wait for a core within a block hides part of this time, hence the third quartile.
    """
    gaps = [block.cpu_gap_ns for block in blocks if block.cpu and block.idle <= CALM]
    return third_quartile(gaps) if gaps else None


def calm_rounds(rounds: Sequence[Sequence[TimedBlock]]) -> list[int]:
    """Return the numbers of the rounds whose blocks hardly waited for a core.

    They include at least half of the rounds with each number of calls.
    """
    idle = [max(block.idle for block in blocks) for blocks in rounds]
    calls = [blocks[0].calls for blocks in rounds]
    return [number for number, share in enumerate(idle) if share <= max(CALM, median(
        other for other, count in zip(idle, calls, strict=True) if count == calls[number]))]


def third_quartile(values: Sequence[float]) -> float:
    """Return the third quartile."""
    return quantiles(values, n=4, method="inclusive")[2] if len(values) > 1 else values[0]


def typical(blocks: Sequence[TimedBlock], time: Time) -> float:
    return median(map(time, blocks))
