"""Time one kernel alone, in the runner that has just checked it: no pair and no verdict.

The runner reports the times; this process's clock bounds them. They suffice to find trials that
are far slower than the best; the others are measured in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.case import Case
from harness.isolation.rpc import Peer, decode_answer
from harness.runners.oracle_client import Oracle
from harness.runners.slots.case_memory import CaseMemory
from harness.tasks.target import Target
from harness.timing import stats
from harness.timing.plan import Plan
from harness.timing.timed_block import CaptureAnswer, WarmupAnswer, timed_block

GRAPH_CALLS = 64
GRAPH_NS = 1_000_000
MOST_IN_GRAPH = 1024
LAUNCHED_NS = 60_000
"""Calls at least this long are launched one by one: event times exclude the host's part."""
BLOCKS = 2


def graph_unit(call_ns: float, copies: int) -> int:
    """Return the number of calls in a graph: enough to hide its launch, equally many on each copy.
    """
    unit = GRAPH_CALLS if call_ns * GRAPH_CALLS < 6 * GRAPH_NS else \
        max(1, round(GRAPH_NS / call_ns))
    return min(MOST_IN_GRAPH // copies, math.ceil(unit / copies)) * copies


class QuickTimer:
    """Times one case of one runner: `prepare`, `warm`, then blocks on copies of the case."""

    def __init__(self, oracle: Oracle, peer: Peer, case: Case, plan: Plan) -> None:
        self.oracle, self.peer, self.case, self.plan = oracle, peer, case, plan
        self.copies = plan.copies(case.footprint)
        self.calls, self.mode, self._unit = 1, "launch", 1
        self._owns = False
        self.memory: CaseMemory

    def prepare(self, like: QuickTimer | None = None) -> None:
        """Fill slots and compile the kernel; other runners may do so at the same time.

        With `like`, use the slots of that timer of another kernel in the same process.
        """
        if like is not None:
            self.memory = like.memory.shared_with(self.peer, getattr(like.peer, "side", ""))
            return
        self.memory = CaseMemory(self.oracle, self.peer, self.case, slots=self.copies)
        self._owns = True
        for slot in range(self.copies):
            self.memory.place(self.case, slot)
        self.memory.run()

    def forget(self) -> None:
        """Free the oracle's part of slots that no other kernel uses."""
        if self._owns:
            self.memory.forget()

    def warm(self) -> None:
        answer = self.peer.ask("warm", case=self.memory.id, warm_ns=self.plan.warm_ns)
        warmed = decode_answer(answer, WarmupAnswer)
        call_ns = warmed.call_ns
        if not warmed.is_long(LAUNCHED_NS):
            unit = graph_unit(call_ns, self.copies)
            graph = decode_answer(self.peer.ask("capture", case=self.memory.id, timed=True,
                                                order=self._order(unit)), CaptureAnswer)
            if graph.graph:
                self.mode, self._unit, call_ns = "graph", unit, graph.graph_ns
        self.calls = self._unit * max(1, round(self.plan.block_ns / max(call_ns, 1.0)
                                               / self._unit))

    def block(self) -> float:
        """Return the nanoseconds per call of one block."""
        return timed_block(self.peer, self.memory.id, self._order(self.calls), self.mode,
                           unit=self._unit).ns / self.calls

    def _order(self, calls: int) -> list[int]:
        """Return the slot of each call: all copies in turn."""
        return [number % self.copies for number in range(calls)]

    def first(self) -> float:
        """Prepare, warm up and return the nanoseconds per call of the fastest of BLOCKS blocks.

        Other work on the machine only makes blocks longer.
        """
        self.prepare()
        self.warm()
        return min(self.block() for _ in range(BLOCKS))


class BestQuickTimes:
    """The best trial so far: its log ratio to the initial kernel, and its first blocks (ns)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.log_ratio = -math.inf
        self._first: dict[str, float] = {}

    def take(self, log_ratio: float | None, first: Mapping[str, float]) -> None:
        if first and log_ratio is not None and log_ratio > self.log_ratio:
            self.log_ratio, self._first = log_ratio, dict(first)

    def behind(self, first: Mapping[str, float]) -> float:
        """Return the mean log ratio of a trial's first blocks to the best trial's; above 0: slower.
        """
        if not first or not self._first:
            return 0.0
        return self._mean({name: math.log(ns / self._first[name]) for name, ns in first.items()})

    def latency_us(self, first: Mapping[str, float]) -> float:
        return math.exp(self._mean({name: math.log(ns) for name, ns in first.items()})) / 1e3

    def _mean(self, values: Mapping[str, float]) -> float:
        classes = [entry for entry in self._target.classes if entry.name in values]
        return stats.weighted_mean([values[entry.name] for entry in classes],
                                   [entry.weight for entry in classes])
