"""One kernel's first blocks, in the runner that has just shown it to be right: no pair, no verdict.

Its times are the runner's own word, no longer than our clock's. They are good enough to see who is
far behind; whoever is not is measured in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.case import Case
from harness.isolation.rpc import Peer, decode_answer
from harness.target import Target
from harness.timing import stats
from harness.timing.paired_blocks import (
    CaptureAnswer,
    TamperedTiming,
    WarmupAnswer,
    graph_unit,
    nanoseconds,
)
from harness.timing.plan import Plan

LAUNCHED_NS = 60_000
"""Calls that take so long are launched one by one: events do not see the host's part."""
BLOCKS = 2


class QuickTimer:
    """Times one case of one runner: `prepare`, `warm`, then blocks."""

    def __init__(self, peer: Peer, case: Case, plan: Plan) -> None:
        self.peer, self.case, self.plan = peer, case, plan
        self.copies = plan.copies(case.footprint)
        self.calls, self.mode, self._unit = 1, "launch", 1

    def prepare(self, like: str = "") -> None:
        """Have buffers made, or those of another side in its process taken, and the kernel
        compiled; other runners may be as busy.
        """
        shared = {"like": like} if like else {}
        self.peer.ask("prepare", case=self.case.id, tensors=self.case.tensors, copies=self.copies,
                      **shared)

    def warm(self) -> None:
        answer = self.peer.ask("warm", case=self.case.id, warm_ns=self.plan.warm_ns)
        call_ns = decode_answer(answer, WarmupAnswer).call_ns
        if call_ns < LAUNCHED_NS:
            unit = graph_unit(call_ns, self.copies)
            graph = decode_answer(self.peer.ask("capture", case=self.case.id, unit=unit),
                                  CaptureAnswer)
            if graph.graph:
                self.mode, self._unit, call_ns = "graph", unit, graph.graph_ns
        self.calls = self._unit * max(1, round(self.plan.block_ns / max(call_ns, 1.0)
                                               / self._unit))

    def block(self) -> float:
        """Return the nanoseconds of a call."""
        ns = nanoseconds(self.peer.ask("block", case=self.case.id, calls=self.calls,
                                       mode=self.mode))
        if not 0 < ns <= self.peer.elapsed_ns:
            raise TamperedTiming(f"reports {ns} ns for a block of {self.peer.elapsed_ns} ns")
        return ns / self.calls

    def first(self) -> float:
        """Return the least of the first blocks: what else a machine does only makes them longer."""
        self.prepare()
        self.warm()
        return min(self.block() for _ in range(BLOCKS))


class BestQuickTimes:
    """The best so far, by its ratio to the start, and what its first blocks took by class."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.log_ratio = -math.inf
        self._first: dict[str, float] = {}

    def take(self, log_ratio: float | None, first: Mapping[str, float]) -> None:
        if first and log_ratio is not None and log_ratio > self.log_ratio:
            self.log_ratio, self._first = log_ratio, dict(first)

    def behind(self, first: Mapping[str, float]) -> float:
        """Return how far first blocks are behind the leader's: the logarithm of a ratio."""
        if not first or not self._first:
            return 0.0
        return self._mean({name: math.log(ns / self._first[name]) for name, ns in first.items()})

    def latency_us(self, first: Mapping[str, float]) -> float:
        return math.exp(self._mean({name: math.log(ns) for name, ns in first.items()})) / 1e3

    def _mean(self, values: Mapping[str, float]) -> float:
        classes = [one for one in self._target.classes if one.name in values]
        return stats.weighted_mean([values[one.name] for one in classes],
                                   [one.weight for one in classes])
