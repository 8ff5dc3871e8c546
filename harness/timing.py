"""Paired timing: incumbent and candidate in two processes, alternating block by block.

One process pair gives one log-ratio per config class. Several pairs give the interval, because a
process has a bias of its own that no amount of sampling inside it removes. Sampling stops early
once every class is settled, and at the last look at the latest.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness import stats
from harness.compare import SURE, settled
from harness.convert import ConvertError, convert
from harness.errors import KoptError, Stopped
from harness.oracle import Case
from harness.peer import Peer, PeerError
from harness.text import plain

BLOCK_NS = 3_000_000
WARM_NS = 4_000_000
BLOCKS = 6
LENGTHENED = 4
CLOCK_TIGHT_NS = 200_000
CLOCK_TIGHT_SHARE = 0.1
CLOCK_TIGHT_GPU_NS = 1_000_000
"""Around a GPU's block 0.1 to 1.2 ms pass on an H200: launches, events, what is overwritten."""
GPU_BLOCK_NS = 8_000_000
"""A GPU's blocks are longer, so that what the clocks leave open is a small part of them."""
SPREADS = 6.0
LENIENT = 3.0
"""A candidate's own spread excuses it up to so many times the incumbent's."""
CONVICTED = 3
"""Looks at which a clock has to be off before the plan's last one."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How hard to look: `looks` are numbers of process pairs, `alpha` is for the whole verdict."""

    looks: tuple[int, ...] = stats.LOOKS
    alpha: float = 0.001
    margin: float = 0.01
    tolerance: float = 0.01
    blocks: int = BLOCKS
    block_ns: int = BLOCK_NS
    warm_ns: int = WARM_NS

    @property
    def alpha_look(self) -> float:
        return stats.alpha_per_look(self.alpha, len(self.looks))


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A runner's own words on one class: how long a call takes, whether it can replay graphs.

    A graph is `unit` calls in a row. Both sides replay graphs, or neither does.
    """

    call_ns: float
    graph: bool = False
    graph_ns: float = 0.0
    unit: int = 1
    why: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.unit <= 1024:
            raise ValueError("a graph holds 1 to 1024 calls")

    def calls(self, block_ns: int, graph: bool) -> int:
        """Return how many calls fill a block, whole graphs of them."""
        unit, call_ns = (self.unit, self.graph_ns) if graph else (1, self.call_ns)
        return unit * max(1, round(block_ns / max(call_ns, 1.0) / unit))


@dataclass(frozen=True, kw_only=True)
class ClassTiming:
    """What the pairs said of one config class; latencies are medians in microseconds."""

    config_class: str
    candidate_us: float
    incumbent_us: float
    log_ratios: tuple[float, ...]


class Tampered(KoptError):
    """A runner reported a time that this process's clock cannot account for."""

    exit_code = 1


class Pairs:
    """Collects process pairs until the plan says that it is enough.

    `alone` stops each side while the other one is timed: on a CPU they share the machine.
    """

    def __init__(self, plan: Plan, cases: Sequence[Case],
                 start: Callable[[Sequence[str]], Sequence[Peer]], *,
                 on_pair: Callable[[int, int], None] | None = None, alone: bool = False,
                 cancel: threading.Event | None = None) -> None:
        self.plan = plan
        self.cases = list(cases)
        self._start = start
        self._on_pair = on_pair
        self._alone = alone
        self._suspicions = 0
        self._gaps: dict[tuple[str, str], list[float]] = {}
        self._cancel = cancel
        self.log_ratios: dict[str, list[float]] = {c.config_class: [] for c in cases}
        self._us: dict[tuple[str, str], list[float]] = {}
        self.launches: dict[str, str] = {}
        """How each class was launched, in words."""

    def run(self, after: Callable[[Peer, Case], None] | None = None) -> list[ClassTiming]:
        """Measure; `after` sees the candidate's runner after the last pair of each look.

        Raises PeerError, PeerDied (the kernel failed while timed) or Tampered.
        """
        last = self.plan.looks[-1]
        for number in range(1, last + 1):
            if self._cancel is not None and self._cancel.is_set():
                raise Stopped("stopped while timing")
            self._pair(number, after if number in self.plan.looks else None)
            if self._on_pair is not None:
                self._on_pair(number, last)
            if number in self.plan.looks and not self._suspected(number) \
                    and self.enough():
                break
        return [ClassTiming(config_class=name, log_ratios=tuple(values),
                            candidate_us=median(self._us["candidate", name]),
                            incumbent_us=median(self._us["incumbent", name]))
                for name, values in self.log_ratios.items()]

    def enough(self) -> bool:
        """Tell whether every class is settled, or one has clearly lost beyond the tolerance."""
        estimates = [stats.estimate(v, self.plan.alpha_look) for v in self.log_ratios.values()]
        if any(e.pairs < 2 for e in estimates):
            return False
        lost = any(e.at(SURE / 5)[1] < -5 * math.log1p(self.plan.tolerance) for e in estimates)
        return lost or all(settled(e, self.plan.margin, self.plan.tolerance) for e in estimates)

    def _pair(self, number: int, after: Callable[[Peer, Case], None] | None) -> None:
        order = ("incumbent", "candidate") if number % 2 else ("candidate", "incumbent")
        peers = dict(zip(order, self._start(order), strict=True))
        try:
            for case in self.cases:
                self._measure(case, peers, order)
            if after is not None:
                for case in self.cases:
                    after(peers["candidate"], case)
        finally:
            for peer in peers.values():
                peer.kill()
            for peer in peers.values():
                peer.close()

    def _block(self, peer: Peer, case: Case, calls: int, graph: bool) -> tuple[int, int]:
        """Time a block; returns its nanoseconds and its calls.

        A block that was much too short is repeated with more calls: a kernel that is slow while
        it is warmed, by chance or by intent, must not be timed by fewer calls than the other.
        """
        for _ in range(LENGTHENED):
            answer = peer.ask("block", case=case.id, calls=calls, graph=graph)
            ns = _nanoseconds(answer)
            if 2 * ns >= self.plan.block_ns:
                break
            calls *= min(1000, math.ceil(self.plan.block_ns / max(ns, 1)))
        return ns, calls

    def _suspected(self, pairs: int) -> bool:
        """Tell whether a candidate's blocks take longer by our clock than by its own.

        A busy machine delays some blocks of both sides; a runner that reports less than it took
        delays its own, and more of them than the spread explains. What looks like it is measured
        further; raises Tampered when it lasts. A screening of a pair or two accuses nobody: what
        it lets pass, a verdict will judge.
        """
        if not (told := self._excess()):
            return False
        self._suspicions += 1
        last = pairs == self.plan.looks[-1]
        if (last and pairs >= stats.LOOKS[0]) or self._suspicions >= CONVICTED:
            raise Tampered(told)
        return True

    def _excess(self) -> str:
        tight = CLOCK_TIGHT_NS if self._alone else CLOCK_TIGHT_GPU_NS
        for case in self.cases:
            ours = self._gaps["incumbent", case.config_class]
            theirs = self._gaps["candidate", case.config_class]
            spread = min(max(_spread(ours), _spread(theirs)), LENIENT * _spread(ours))
            excess = median(theirs) - median(ours)
            if excess > tight + SPREADS * spread / math.sqrt(len(ours)):
                return (f"class {case.config_class}: the candidate's blocks take "
                        f"{excess / 1e6:.2f} ms more than it reports")
        return ""

    def _prepare(self, peer: Peer, case: Case) -> Ready:
        answer = peer.ask("prepare", case=case.id, tensors=case.tensors, warm_ns=self.plan.warm_ns)
        try:
            return convert(answer, Ready)
        except ConvertError as error:
            raise PeerError(f"the runner's answer makes no sense: {error}") from None

    def _measure(self, case: Case, peers: dict[str, Peer], order: tuple[str, str]) -> None:
        ready = {side: self._prepare(peers[side], case) for side in order}
        graph = all(one.graph for one in ready.values())
        calls = {side: ready[side].calls(self.plan.block_ns, graph) for side in order}
        self.launches[case.config_class] = _launches(graph, ready)
        per_call: dict[str, list[float]] = {side: [] for side in order}
        unaccounted: dict[str, list[tuple[int, int]]] = {side: [] for side in order}
        for block in range(self.plan.blocks):
            for side in order if block % 2 == 0 else order[::-1]:
                if self._alone:
                    peers[_other(side)].pause()
                    peers[side].resume()
                ns, calls[side] = self._block(peers[side], case, calls[side], graph)
                elapsed = peers[side].elapsed_ns
                if not 0 < ns <= elapsed:
                    raise Tampered(f"the {side} reports {ns} ns for a block of {elapsed} ns")
                untimed = ns * (ready[side].unit if graph else 1) // calls[side]
                unaccounted[side].append((ns, elapsed - ns - untimed))
                per_call[side].append(ns / calls[side])
        for side in order:
            if self._alone:
                peers[side].resume()
            gaps = self._gaps.setdefault((side, case.config_class), [])
            gaps += [gap - CLOCK_TIGHT_SHARE * ns for ns, gap in unaccounted[side]]
        ratios = [math.log(max(i, 1e-3) / max(c, 1e-3)) for i, c in
                  zip(per_call["incumbent"], per_call["candidate"], strict=True)]
        self.log_ratios[case.config_class].append(median(ratios))
        for side in order:
            self._us.setdefault((side, case.config_class), []).append(median(per_call[side]) / 1e3)


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(value - middle) for value in values)


def _launches(graph: bool, ready: Mapping[str, Ready]) -> str:
    if graph:
        return "graphs of " + ", ".join(f"{one.unit} calls ({side})" for side, one
                                        in sorted(ready.items()))
    reasons = [f"{side}: {plain(one.why, 200)}" for side, one in sorted(ready.items()) if one.why]
    return "one by one" + (f"; no graph: {'; '.join(reasons)}" if reasons else "")


def _other(side: str) -> str:
    return "incumbent" if side == "candidate" else "candidate"


def _nanoseconds(answer: Mapping[str, object]) -> int:
    ns = answer.get("ns")
    if not isinstance(ns, int) or isinstance(ns, bool) or not 0 <= ns < 1 << 62:
        raise PeerError("answered something that is no answer")
    return ns
