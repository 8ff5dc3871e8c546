"""Time one config class in one process pair: blocks of the two sides in strict alternation.

Every call of a block has a slot of its own, with contents that no call has seen. After each round
both sides are stopped, and all their answers are compared with each other.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean, median
from time import perf_counter_ns

from harness.case import Case
from harness.errors import DeviceFault
from harness.formats.text import plain
from harness.isolation.rpc import Peer, decode_answer
from harness.timing.block_times import TimedBlock, calm_rounds
from harness.timing.plan import Plan
from harness.timing.timed_block import CaptureAnswer, WarmupAnswer, timed_block
from harness.timing.timed_slots import Disputes, SlotSource, TimedSlots

SINGLE_NS = 500_000
"""From this duration on, calls are launched one by one if the host stays ahead of the GPU."""
FIRST_SLOTS = 2
"""Slots on which the kernels are compiled and warmed up, before the sizes of blocks are known."""
MOST_VOIDED = 40

VoidReason = Callable[[int, int], str]
"""Returns why blocks between two times (perf_counter_ns) are void; empty if they count."""


class PairedBlocks:
    """Times one case on both sides: `prepare`, `wait_prepared`, `warm`, then `run`.

    With `freeze` a side is stopped while the other one's blocks are timed, and both while contents
    are written and answers compared, so that nothing changes after a block. Before the blocks both
    may prepare and capture graphs at the same time. With `alone`, kernels on a CPU that both sides
    share are timed by the host's clock.
    """

    def __init__(self, plan: Plan, case: Case, peers: Mapping[str, Peer], order: Sequence[str],
                 source: SlotSource, *, alone: bool, freeze: bool = True,
                 voids: VoidReason | None = None) -> None:
        self.plan, self.case, self.peers, self.order = plan, case, peers, tuple(order)
        self._source = source
        self._alone, self._freeze = alone, freeze
        self._voids = voids
        self.voided: list[str] = []
        self.blocks: dict[str, list[TimedBlock]] = {side: [] for side in order}
        self.scored: Mapping[str, Sequence[TimedBlock]] = self.blocks
        """The blocks that count: on a busy CPU, only those of calm rounds."""
        self.others: dict[str, list[TimedBlock]] = {}
        """By side, the blocks that measured the time that is not scored."""
        self.damage: dict[str, str] = {}
        """By side, what timed calls overwrote besides their outputs."""
        self._graph_orders: dict[int, list[int]] = {}
        self._disputes = Disputes()
        self._slots: TimedSlots | None = None

    def prepare(self, *, concurrently: bool = True) -> None:
        """Start both sides' allocation and compilation; `wait_prepared` waits for them.

        If not `concurrently`, wait for one side after the other here, and not in `wait_prepared`.
        """
        self._concurrently = concurrently
        self._first = self._source.open(self.case, FIRST_SLOTS)
        self._first.draw(FIRST_SLOTS)
        for side in self.order:
            self._first.fill(side)
            self._first.send(self.peers[side], side)
            if not concurrently:
                self._first.receive(self.peers[side], side)

    def wait_prepared(self) -> None:
        for side in self.order:
            self._first.receive(self.peers[side], side)

    def warm(self) -> None:
        """Warm one side after the other, choose the sizes of blocks, and open their slots."""
        answers = list[WarmupAnswer]()
        for side in self.order:
            self._run_alone(side)
            answers.append(decode_answer(self.peers[side].ask(
                "warm", case=self.case.id, warm_ns=self.plan.warm_ns), WarmupAnswer))
        # the mean of both, so that neither side's blocks are much too long or too short
        self.sizes = self.plan.within(self._source.room(self.plan.ring_bytes)).sizes(
            self._source.slot_bytes(self.case, self._first),
            geometric_mean(max(1.0, answer.call_ns) for answer in answers))
        self._slots = self._source.open(self.case, self.sizes.slots, self._first)
        self._slots.draw(self.sizes.slots)
        slots = self._slots

        def send(side: str) -> None:
            slots.fill(side)
            slots.send(self.peers[side], side)

        self._ask_both(send, lambda side: slots.receive(self.peers[side], side))
        self._first.close()
        slowest = max(answers, key=lambda answer: answer.call_ns)
        self._choose_mode(slowest.is_long(SINGLE_NS)
                          and all(answer.is_long(0.0) for answer in answers))

    def _choose_mode(self, is_long: bool) -> None:
        """Choose how calls are launched, alike for both sides."""
        by_host = self._alone or self.plan.by_host
        self._graphs: dict[str, CaptureAnswer] = {}
        self._is_long = not by_host and is_long
        if not by_host and not self._is_long:
            self._capture()
        has_graphs = bool(self._graphs) and all(answer.graph for answer in self._graphs.values())
        self.kernel_mode = "graph" if has_graphs else "launch"
        self.mode = "wall" if by_host or self.plan.score == "wall" else self.kernel_mode
        self.other_mode = "" if by_host else "wall" if self.mode != "wall" else self.kernel_mode

    def _capture(self) -> None:
        """Capture a graph for each length of blocks; their calls are in secret orders."""
        def send(side: str) -> None:
            self.peers[side].send("capture", case=self.case.id, timed=False,
                                  order=self._graph_orders[count])

        def receive(side: str) -> None:
            self._graphs[side] = decode_answer(self.peers[side].receive(), CaptureAnswer)

        for factor in {1, self.sizes.long}:
            count = self.sizes.calls * factor
            self._graph_orders[count] = self._order(count, count)
            self._ask_both(send, receive)
            if not all(answer.graph for answer in self._graphs.values()):
                break

    def _ask_both(self, send: Callable[[str], None], receive: Callable[[str], None]) -> None:
        """Send a request to both sides, to one after the other unless they prepare concurrently."""
        if self._concurrently:
            self.resume_both()
            for ask in (send, receive):
                for side in self.order:
                    ask(side)
            return
        for side in self.order:
            self._run_alone(side)
            send(side)
            receive(side)

    def run(self) -> tuple[float, float | None]:
        """Return log(incumbent / candidate) of the scored time, and of the other time or None.

        One round is enough for the other time: it must only not be longer, and the order of the
        sides alternates between pairs.
        """
        sizes = self.sizes
        judged = secrets.randbelow(sizes.blocks)
        ratios = [self._round(self.mode, sizes.factor(number), number, self.blocks,
                              judge=number == judged) for number in range(sizes.blocks)]
        for number in range(sizes.blocks):
            if reason := self._void_reason(number):
                ratios[number] = self._repeat(number, reason)
        calm = calm_rounds(list(zip(*self.blocks.values(), strict=True)))
        self.scored = {side: [blocks[number] for number in calm]
                       for side, blocks in self.blocks.items()}
        ratio = median(ratios[number] for number in calm)
        if not self.other_mode or self.plan.screening:
            return ratio, None
        self.others = {side: [] for side in self.order}
        return ratio, self._round(self.other_mode, 1, 0, self.others)

    def us_per_call(self, side: str) -> float:
        return _us_per_call(self.scored[side])

    def other_us(self, side: str) -> float | None:
        """Return the microseconds of a call by the time that is not scored; None without one."""
        blocks = self.others.get(side)
        return _us_per_call(blocks) if blocks else None

    @property
    def judged_calls(self) -> int:
        """Number of the candidate's timed calls, all of whose answers were compared."""
        return sum(block.calls for block in
                   (*self.blocks["candidate"], *self.others.get("candidate", ())))

    def _round(self, mode: str, factor: int, number: int, timed: dict[str, list[TimedBlock]], *,
               judge: bool = False) -> float:
        """Time a block of each side on new contents, and compare all answers.

        The order of the sides reverses with every round. With `judge`, the reference judges one
        slot as well, whether the sides agree there or not. A side gets its contents while it is
        stopped, and then runs nothing before its first timed call.
        """
        assert self._slots is not None
        calls = self.sizes.calls * factor
        # on the CPU all slots are written, so that caches hold as much for short blocks as for long
        count = calls if self.plan.cache_bytes or mode == "graph" else self.sizes.slots - 1
        self._slots.draw(count)
        order = self._graph_orders[calls] if mode == "graph" else self._order(calls, count)
        for side in self.order if number % 2 == 0 else self.order[::-1]:
            timed[side].append(self._block(self._slots, side, mode, order, count))
        self._compare(self._slots, count, order, secrets.choice(order) if judge else None)
        per_call = {side: timed[side][-1].scored_ns / timed[side][-1].calls for side in self.order}
        return math.log(max(per_call["incumbent"], 1e-3) / max(per_call["candidate"], 1e-3))

    def _order(self, calls: int, slots: int) -> list[int]:
        """Return `calls` slots in a secret order, from which no later order can be predicted."""
        return random.Random(secrets.randbits(256)).sample(range(slots), calls)

    def _block(self, slots: TimedSlots, side: str, mode: str, order: list[int],
               count: int) -> TimedBlock:
        self._run_alone(side)
        block = timed_block(
            self.peers[side], self.case.id, order, mode, fill=lambda: slots.fill(side),
            fetch=slots.needs_fetch, store=slots.needs_store, flip=lambda: slots.flip(side),
            stop=self._freeze, cpu=self._alone, name=f"the {side}")
        if self._alone:
            return block
        began_ns = perf_counter_ns()  # what the GPU still does for a stopped side delays this
        slots.keep_sample(side, count)
        return replace(block, sample_ns=perf_counter_ns() - began_ns)

    def _compare(self, slots: TimedSlots, count: int, order: Sequence[int],
                 judged: int | None) -> None:
        comparison = slots.compare(count, order)
        chosen = [*self._disputes.chosen(comparison), *([] if judged is None else [judged])]
        for damage in (comparison.damage, *(slots.judge(slot) for slot in chosen)):
            for side, what in damage.items():
                if what:
                    self.damage.setdefault(side, what)

    def _run_alone(self, side: str) -> None:
        """Let one side run while the other is stopped, where processes can be stopped."""
        if self._freeze:
            self.peers[_other(side)].pause()
            self.peers[side].resume()

    def resume_both(self) -> None:
        for side in self.order if self._freeze else ():
            self.peers[side].resume()

    def release(self) -> None:
        """Let the runners unmap the slots, and free them."""
        if (slots := self._slots) is None:
            return
        for side in self.order:
            self._run_alone(side)
            slots.drop(self.peers[side])
        self.resume_both()
        self.close()

    def close(self) -> None:
        """Free the slots; the runners keep their mappings until they end."""
        if self._slots is not None:
            self._slots.close()
            self._slots = None

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
            ratio = self._round(self.mode, self.sizes.factor(number), number, timed)
            for side in self.order:
                self.blocks[side][number] = timed[side][-1]
            if not (reason := self._void_reason(number)):
                return ratio
        raise DeviceFault(f"{MOST_VOIDED} blocks in a row were void: {reason}",
                          where="the card", fix="try again when it is free and cool")

    @property
    def launched(self) -> str:
        """How calls were launched, and with which caches, in words."""
        calls = self.sizes.calls
        cold = "cold cache" if self.plan.cache_bytes else "warm cache"
        each = f"{cold}, new contents for each call"
        if self.mode == "graph":
            return f"graphs of {calls} and {calls * self.sizes.long} calls; {each}"
        reasons = [f"{side}: {plain(answer.why, 200)}"
                   for side, answer in sorted(self._graphs.items()) if answer.why]
        if self._is_long:
            reasons.append(f"a call takes more than {SINGLE_NS // 1000} us")
        return f"one by one; {each}" + (f"; no graph: {'; '.join(reasons)}" if reasons else "")


def _us_per_call(blocks: Sequence[TimedBlock]) -> float:
    return median(block.scored_ns / block.calls for block in blocks) / 1e3


def _other(side: str) -> str:
    return "incumbent" if side == "candidate" else "candidate"
