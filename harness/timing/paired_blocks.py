"""Time one config class in one process pair: blocks of the two sides in strict alternation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.case import Case
from harness.errors import DeviceFault, KoptError
from harness.formats.text import plain
from harness.isolation.rpc import INVALID_ANSWER, Peer, PeerError, decode_answer
from harness.timing.clock_check import TimedBlock
from harness.timing.input_mutation import InputMutation
from harness.timing.plan import Plan

GRAPH_CALLS = 64
GRAPH_NS = 1_000_000
MOST_IN_GRAPH = 1024
SINGLE_NS = 500_000
"""From this duration on, calls are launched one by one: the host stays well ahead of them."""
LENGTHENED = 4
OTHER_BLOCKS = 2
SHORTEST_CHAIN, LONGEST_CHAIN = 32, 256
PROBES = 3
MOST_VOIDED = 40

VoidReason = Callable[[int, int], str]
"""Returns why a block between two times (perf_counter_ns) is void; empty if it counts."""


class TamperedTiming(KoptError):
    """A runner reported a time that contradicts this process's clock."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class WarmupAnswer:
    """A runner's own measurement of a call of one class."""

    call_ns: float

    def __post_init__(self) -> None:
        _check_time(self.call_ns)


@dataclass(frozen=True, kw_only=True)
class CaptureAnswer:
    """A runner's answer about a graph of calls: whether there is one, and its time per call."""

    graph: bool = False
    graph_ns: float = 0.0
    why: str = ""

    def __post_init__(self) -> None:
        _check_time(self.graph_ns)


def _check_time(ns: float) -> None:
    if not 0 <= ns < 1e15:
        raise ValueError("not a possible time of a call")


def graph_unit(call_ns: float, copies: int) -> int:
    """Return the number of calls in a graph: enough to hide its launch, the same for each copy."""
    unit = GRAPH_CALLS if call_ns * GRAPH_CALLS < 6 * GRAPH_NS else \
        max(1, round(GRAPH_NS / call_ns))
    return min(MOST_IN_GRAPH // copies, math.ceil(unit / copies)) * copies


class PairedBlocks:
    """Times one case on both sides: `prepare`, `wait_prepared`, `warm`, then `run`.

    `alone` stops the other side while one is timed, since they share a CPU.
    """

    def __init__(self, plan: Plan, case: Case, peers: Mapping[str, Peer], order: Sequence[str], *,
                 alone: bool, voids: VoidReason | None = None) -> None:
        self.plan, self.case, self.peers, self.order = plan, case, peers, tuple(order)
        self._alone = alone
        self._voids = voids
        self.voided: list[str] = []
        self.copies = plan.copies(case.footprint)
        seed = random.Random(case.id).random()
        self.contents = {side: InputMutation(case, random.Random(seed)) for side in order}
        self.blocks: dict[str, list[TimedBlock]] = {side: [] for side in order}
        self.others: dict[str, list[TimedBlock]] = {}
        """Blocks of the time that is not scored."""
        self._calls: dict[tuple[str, str], int] = {}

    def prepare(self, *, concurrently: bool = True) -> None:
        """Start both sides' allocation and compilation; `wait_prepared` waits for them.

        If not `concurrently`, wait for one side after the other here, and not in `wait_prepared`.
        """
        for side in self.order:
            self.peers[side].send("prepare", case=self.case.id, tensors=self.case.tensors,
                                  copies=self.copies)
            if not concurrently:
                self.peers[side].receive()

    def wait_prepared(self) -> None:
        for side in self.order:
            self.peers[side].receive()

    def warm(self) -> None:
        """Warm one side after the other, and choose how calls are launched, alike for both."""
        self._call_ns = {side: decode_answer(self.peers[side].ask(
            "warm", case=self.case.id, warm_ns=self.plan.warm_ns), WarmupAnswer).call_ns
            for side in self.order}
        slowest_ns = max(1.0, *self._call_ns.values())
        self._unit = graph_unit(slowest_ns, self.copies)
        by_host = self._alone or self.plan.by_host
        single = by_host or slowest_ns >= SINGLE_NS
        self._graphs = {} if single else {side: decode_answer(self.peers[side].ask(
            "capture", case=self.case.id, unit=self._unit), CaptureAnswer) for side in self.order}
        graph = bool(self._graphs) and all(answer.graph for answer in self._graphs.values())
        self.kernel_mode = "graph" if graph else "launch"
        self.mode = "wall" if by_host or self.plan.score == "wall" else self.kernel_mode
        self.other_mode = "" if by_host else "wall" if self.mode != "wall" else self.kernel_mode

    def run(self) -> tuple[float, float | None]:
        """Return log(incumbent / candidate) of the scored time, and of the other one or None."""
        ratios = [self._round(number, self.mode, self.plan.factor(number), self.blocks)
                  for number in range(self.plan.blocks)]
        for number in range(self.plan.blocks):
            if reason := self._void_reason(number):
                ratios[number] = self._repeat(number, reason)
        if not self.other_mode or self.plan.screening:
            return median(ratios), None
        self.others = {side: [] for side in self.order}
        return median(ratios), median(self._round(number, self.other_mode, 1, self.others)
                                      for number in range(OTHER_BLOCKS))

    def us_per_call(self, side: str) -> float:
        return _us_per_call(self.blocks[side])

    def other_us(self, side: str) -> float | None:
        """Return the microseconds of a call by the time that is not scored; None without one."""
        blocks = self.others.get(side)
        return _us_per_call(blocks) if blocks else None

    def _round(self, number: int, mode: str, factor: int,
               timed: dict[str, list[TimedBlock]]) -> float:
        """Time a block of each side; the order reverses with every round."""
        for side in self.order if number % 2 == 0 else self.order[::-1]:
            self._run_alone(side)
            timed[side].append(self._block(side, mode, factor))
        per_call = {side: timed[side][-1].ns / timed[side][-1].calls for side in self.order}
        return math.log(max(per_call["incumbent"], 1e-3) / max(per_call["candidate"], 1e-3))

    def _run_alone(self, side: str) -> None:
        if self._alone:
            self.peers[_other(side)].pause()
            self.peers[side].resume()

    def resume_both(self) -> None:
        for side in self.order if self._alone else ():
            self.peers[side].resume()

    def _block(self, side: str, mode: str, factor: int) -> TimedBlock:
        """Change the inputs and time a block."""
        self.peers[side].ask("exchange", case=self.case.id, moves=self.contents[side].draw(
            min(self.copies, self._count(side, mode))), copy=self.contents[side].copy)
        return self._long_enough(side, mode, factor)

    def _void_reason(self, number: int) -> str:
        """Return why a round is void; empty if it counts."""
        if self._voids is None:
            return ""
        blocks = [self.blocks[side][number] for side in self.order]
        return self._voids(min(block.asked_ns for block in blocks),
                           max(block.asked_ns + block.elapsed_ns for block in blocks))

    def _repeat(self, number: int, reason: str) -> float:
        """Repeat a round until it counts. Raises DeviceFault after MOST_VOIDED repetitions."""
        for _ in range(MOST_VOIDED):
            self.voided.append(reason)
            timed: dict[str, list[TimedBlock]] = {side: [] for side in self.order}
            ratio = self._round(number, self.mode, self.plan.factor(number), timed)
            for side in self.order:
                self.blocks[side][number] = timed[side][-1]
            if not (reason := self._void_reason(number)):
                return ratio
        raise DeviceFault(f"{MOST_VOIDED} blocks in a row were void: {reason}",
                          where="the card", fix="try again when it is free and cool")

    def _count(self, side: str, mode: str) -> int:
        if (side, mode) not in self._calls:
            unit, call_ns = (self._unit, self._graphs[side].graph_ns) if mode == "graph" else \
                (1, self._call_ns[side])
            self._calls[side, mode] = unit * max(
                1, round(self.plan.block_ns / max(call_ns, 1.0) / unit))
        return self._calls[side, mode]

    def _long_enough(self, side: str, mode: str, factor: int) -> TimedBlock:
        """Time a block; repeat one that was much too short with more calls.

        A kernel that is slow during the warm-up, by chance or by intent, must not be timed over
        fewer calls than the other.
        """
        peer, target_ns = self.peers[side], factor * self.plan.block_ns
        for _ in range(LENGTHENED):
            calls = factor * self._count(side, mode)
            ns = nanoseconds(peer.ask("block", case=self.case.id, calls=calls, mode=mode))
            if 2 * ns >= target_ns:
                break
            self._calls[side, mode] *= min(1000, math.ceil(target_ns / max(ns, 1)))
        if not 0 < ns <= peer.elapsed_ns:
            raise TamperedTiming(f"the {side} reports {ns} ns for a block of {peer.elapsed_ns} ns")
        unit = self._unit if mode == "graph" else 1
        return TimedBlock(calls, ns, peer.elapsed_ns, ns * unit // calls, peer.asked_ns)

    def probe(self) -> float:
        """Return the candidate's time on new contents relative to that on old contents.

        Before each call an element is moved, within the inputs (new contents) or in memory that no
        call reads (old contents).
        """
        self._run_alone("candidate")
        contents = self.contents["candidate"]
        per_call_ns = 1e3 * self.us_per_call("candidate")
        length = round(self.plan.block_ns / (per_call_ns + 1000))
        least: dict[bool, int] = {}
        for number in range(2 * PROBES):
            fresh = number % 4 in (0, 3)
            chain = contents.chain(max(SHORTEST_CHAIN, min(LONGEST_CHAIN, length)))
            if not chain:
                return 1.0
            answer = self.peers["candidate"].ask(
                "probe", case=self.case.id, chain=chain, fresh=fresh, graph=self.mode == "graph")
            least[fresh] = min(nanoseconds(answer), least.get(fresh, 1 << 62))
            if fresh:
                contents.copy = 0  # the whole chain is on the first copy
                contents.note(0, chain)
        return least[True] / max(1, least[False])

    @property
    def launched(self) -> str:
        """How calls were launched, and with which caches, in words."""
        cold = f"cold cache, {self.copies} copies in turn" if self.copies > 1 else \
            "cold cache, one call's data exceed it" if self.plan.cache_bytes else "warm cache"
        if self.mode == "graph":
            return f"graphs of {self._unit} call{'s' if self._unit > 1 else ''}; {cold}"
        reasons = [f"{side}: {plain(answer.why, 200)}"
                   for side, answer in sorted(self._graphs.items()) if answer.why]
        return f"one by one; {cold}" + (f"; no graph: {'; '.join(reasons)}" if reasons else "")


def _us_per_call(blocks: Sequence[TimedBlock]) -> float:
    return median(block.ns / block.calls for block in blocks) / 1e3


def _other(side: str) -> str:
    return "incumbent" if side == "candidate" else "candidate"


def nanoseconds(answer: Mapping[str, object]) -> int:
    """Return a runner's time of a block. Raises PeerError if it is no valid number."""
    ns = answer.get("ns")
    if not isinstance(ns, int) or isinstance(ns, bool) or not 0 <= ns < 1 << 62:
        raise PeerError(INVALID_ANSWER)
    return ns
