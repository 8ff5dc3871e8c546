"""The slots of timed calls: shared memory of the oracle and of both sides' runners.

The oracle gives each slot new contents before a block, compares both sides' answers after it, and
compares some with the reference (harness/child/oracle/ring.py).
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from harness.case import Case, Errors
from harness.formats.json_codec import convert
from harness.formats.text import plain
from harness.isolation.rpc import Peer, PeerError, decode_answer
from harness.runners.oracle_client import Oracle
from harness.runners.slots.slot_layout import PreparedAnswer, ReturnedTensor, placed
from harness.timing.timed_slots import SlotComparison, TimedSlots

SIDES = ("candidate", "incumbent")
ROOM_SHARE = 0.8
"""Slots take at most this share of a card's free memory, since calls need memory, too."""
ARGUMENT_MEMORY = "an argument's memory"
KEPT_RETURNS = 4
"""Copies of a returned value: one in the slot, and those that the call and two graphs hold."""


@dataclass(frozen=True, kw_only=True)
class JudgedSlot:
    """The contents of a slot as a case, and both sides' errors in it."""

    case: Case
    errors: Mapping[str, Errors]


class SlotRing:
    """The slots of one class, in one memory per side; the memories are allocated in `order`."""

    def __init__(self, source: SlotRings, case: Case, slots: int,
                 returned: Mapping[str, Sequence[ReturnedTensor]], order: Sequence[str]) -> None:
        self._source, self._case, self._oracle = source, case, source.oracle
        self._id = secrets.token_hex(8)
        self._drawn, self._is_open = 0, True
        self.returned = dict(returned)
        tensors, end = placed(case.tensors)
        regions, size = {}, end
        for side in order:
            regions[side], last = placed([
                {"name": "return", "role": "return", "dtype": tensor.dtype,
                 "shape": list(tensor.shape), "nbytes": tensor.nbytes, "memory": tensor.memory}
                for tensor in self.returned.get(side, ())], end=end)
            size = max(size, last)
        self._has_weights = any(tensor["weight"] for tensor in case.tensors)
        self._shape = {"tensors": tensors, "slots": slots, "slot_bytes": size}
        self._regions = regions
        answer, descriptors = self._oracle.share(
            "open_ring", ring=self._id, seed=secrets.randbits(48), sides=regions,
            kinds=source.kinds(case.config_class), **{"class": case.config_class}, **self._shape)
        if (few := int(answer["kinds"])) < len(source.kinds(case.config_class)):
            source.fewer[case.config_class] = few
        self._memory = dict(zip(order, answer["memory"], strict=True))
        files = iter(descriptors)
        self._files = {side: list(islice(files, count))
                       for side, count in zip(order, answer["files"], strict=True)}
        staged = source.on_gpu and self._memory["candidate"]["kind"] == "host"
        self.needs_fetch, self.needs_store = staged, staged or bool(self.returned)

    def send(self, peer: Peer, side: str) -> None:
        peer.send("prepare", self._files[side], case=self._case.id,
                  memory=self._memory[side], returned=self._regions[side], call=True,
                  keep=self._has_weights, one_weight=self._source.flush_bytes == 0, **self._shape)
        self._close_files(side)  # further rings are opened before this one is closed

    def receive(self, peer: Peer, side: str) -> None:
        answer = decode_answer(peer.receive(), PreparedAnswer)
        if answer.returned:
            self.returned[side] = answer.returned
        shapes = [[tensor.shape for tensor in each] for each in self.returned.values()]
        if any(each != shapes[0] for each in shapes):
            raise PeerError("candidate and incumbent return tensors of different shapes")
        if all(side in self.returned for side in SIDES):
            self._note_memory(*self.returned["candidate"])

    def _note_memory(self, *returned: ReturnedTensor) -> None:
        """Note if the candidate returns special memory where the incumbent does not.

        Copying it is not timed: the candidate may leave out a copy that the incumbent makes.
        """
        for tensor, other in zip(returned, self.returned["incumbent"], strict=True):
            if tensor.memory not in ("", other.memory):
                self._source.unlike[self._case.config_class] = plain(tensor.memory, 100)

    def drop(self, peer: Peer) -> None:
        if not self._has_weights:
            peer.ask("drop", case=self._case.id)

    def draw(self, count: int) -> None:
        self._drawn = count

    def fill(self, side: str) -> None:
        drawn, self._drawn = self._drawn, 0
        self._oracle.ask("fill_ring", ring=self._id, side=side, draw=drawn,
                         flush_bytes=self._source.flush_bytes)

    def flip(self, side: str) -> None:
        is_view = any(tensor.memory == ARGUMENT_MEMORY
                      for tensor in self.returned.get("incumbent", ()))
        if self.returned and not self.needs_fetch and not is_view:
            self._oracle.ask("flip_ring", ring=self._id, side=side)

    def keep_sample(self, side: str, count: int) -> None:
        self._oracle.ask("sample_ring", ring=self._id, side=side, count=count)

    def compare(self, count: int, order: Sequence[int]) -> SlotComparison:
        answer = self._oracle.ask("compare_ring", ring=self._id, count=count, order=order,
                                  limits=self._source.limits(self._case))
        return SlotComparison(differs=tuple(answer["differs"]), damage=answer["damage"],
                              excess=tuple(map(float, answer["excess"])))

    def judge(self, slot: int) -> Mapping[str, str]:
        case = self._oracle.new_case(self._case)
        answer = self._oracle.ask("judge_slot", ring=self._id, slot=slot, case=case.id,
                                  tensors=case.tensors,
                                  dtypes=self._oracle.target.output_dtypes)
        if not answer["skip"]:
            self._source.judged.append(JudgedSlot(case=case, errors={
                side: convert(answer[side], Errors) for side in SIDES}))
        return convert(answer["damage"], dict[str, str])

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            for side in SIDES:
                self._close_files(side)
            self._oracle.ask("close_ring", ring=self._id)

    def _close_files(self, side: str) -> None:
        while self._files[side]:
            os.close(self._files[side].pop())


class SlotRings:
    """Makes the slots of a verdict, and collects those that the reference judged.

    `kinds` returns the usable kinds of input of a class, `limits` for each output the relative
    difference up to which two answers count as equal. `flush_bytes` is the size of a GPU's cache,
    which is emptied before each block if the size is above zero.
    """

    def __init__(self, oracle: Oracle, *, kinds: Callable[[str], Sequence[str]],
                 limits: Callable[[Case], Sequence[float]], on_gpu: bool,
                 flush_bytes: int = 0) -> None:
        self.oracle, self.kinds, self.limits = oracle, kinds, limits
        self.on_gpu, self.flush_bytes = on_gpu, flush_bytes
        self.judged: list[JudgedSlot] = []
        self.fewer: dict[str, int] = {}
        """How many kinds of input timed calls get, by class, where the card has no room for all."""
        self.unlike: dict[str, str] = {}
        """By class, what is special about the memory that only the candidate returns."""
        self._opened: Counter[tuple[str, bool]] = Counter()

    def slot_bytes(self, case: Case, like: TimedSlots) -> int:
        """Return the bytes of a card's memory that a slot needs: its tensors and returned values.

        A returned value is copied into the slot. The runner also keeps it for the call on the
        slot, and for each graph that has such a call.
        """
        placed_bytes = placed(case.tensors)[1]
        if not self.on_gpu or not isinstance(like, SlotRing):
            return placed_bytes
        return placed_bytes + KEPT_RETURNS * max((
            sum(tensor.nbytes for tensor in tensors) for tensors in like.returned.values()),
            default=0)

    def room(self, nbytes: int) -> int:
        """Return how many bytes each side's slots can have, at most `nbytes`; keeps a margin."""
        if not self.on_gpu:
            return nbytes
        needed = int(nbytes * len(SIDES) / ROOM_SHARE)
        answer = convert(self.oracle.ask("room", bytes=needed)["bytes"], int)
        return nbytes if answer >= needed else int(answer * ROOM_SHARE) // len(SIDES)

    def open(self, case: Case, slots: int, like: TimedSlots | None = None) -> SlotRing:
        """Return new slots; the side whose memory is allocated first alternates from call to call.

        A card reuses freed memory. If the same side always got it, a kernel that is slower there
        would seem slower in every pair of a verdict.
        """
        key = case.config_class, like is None
        order = SIDES[::-1] if self._opened[key] % 2 else SIDES
        self._opened[key] += 1
        return SlotRing(self, case, slots, like.returned if isinstance(like, SlotRing) else {},
                        order)
