"""The slots of timed calls, as the timing sees them: filled, passed to both sides, and compared.

`harness/runners/slots/slot_ring.py` implements them by requests to the oracle's process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.case import Case
from harness.isolation.rpc import Peer

MOST_DISPUTED = 2
"""The reference judges at most this many of a block's slots in which the sides differ."""


@dataclass(frozen=True, kw_only=True)
class SlotComparison:
    """Both sides' answers in a number of slots, compared.

    `differs` are the worst slots in which they differ by more than the tolerance, worst first;
    `excess` is each difference as a multiple of the tolerance; `damage` says by side what it
    overwrote besides its outputs.
    """

    differs: tuple[int, ...] = ()
    excess: tuple[float, ...] = ()
    damage: Mapping[str, str]


class Disputes:
    """Chooses which of the slots in which the sides differ the reference judges.

    If the candidate is wrong in one, the verdict ends. Otherwise differences of that size are
    allowed from then on, and the reference judges only larger ones.
    """

    def __init__(self) -> None:
        self._allowed = 0.0

    def chosen(self, comparison: SlotComparison) -> list[int]:
        """Return a block's worst slots that differ more than all chosen in earlier blocks."""
        larger = [(slot, excess) for slot, excess in zip(comparison.differs, comparison.excess,
                                                         strict=True) if excess > self._allowed]
        chosen = larger[:MOST_DISPUTED]
        self._allowed = max([self._allowed, *(excess for _, excess in chosen
                                              if excess < math.inf)])
        return [slot for slot, _ in chosen]


class TimedSlots(Protocol):
    """Slots of one class; each call of a block has one of its own, with other contents."""

    needs_fetch: bool
    """Whether a runner copies contents to its GPU before a block."""
    needs_store: bool
    """Whether a runner copies answers into the slots after a block."""

    def send(self, peer: Peer, side: str) -> None:
        """Ask a runner to map its side's slots and to call the kernel once on each."""

    def receive(self, peer: Peer, side: str) -> None:
        """Wait until the runner has done what `send` asks. Raises PeerError and PeerDied."""

    def drop(self, peer: Peer) -> None:
        """Let a runner unmap its slots, unless the kernel may remember weights in them."""

    def draw(self, count: int) -> None:
        """Make the next `fill` choose contents that no call has seen for the first `count` slots.

        Both sides get the same contents.
        """

    def fill(self, side: str) -> None:
        """Write the chosen contents into the slots of a side."""

    def flip(self, side: str) -> None:
        """Invert the bits of the inputs in some of a side's slots, or restore them.

        They are inverted while returned values are copied, so that no value can come from an input.
        Nothing happens if nothing is returned, if a runner copies contents to its GPU, or where the
        incumbent returns its arguments' memory.
        """

    def keep_sample(self, side: str, count: int) -> None:
        """Keep a sample of a side's answers after its block; `compare` sees what changed since."""

    def compare(self, count: int, order: Sequence[int]) -> SlotComparison:
        """Compare both sides in the slots of a block's calls, in their order; `count` were filled.

        The outputs of other slots are answers to earlier contents.
        """

    def judge(self, slot: int) -> Mapping[str, str]:
        """Compare both sides' answers in a slot with the reference, and record the result.

        Returns for each side which of its inputs it overwrote.
        """

    def close(self) -> None: ...


class SlotSource(Protocol):
    """Makes slots for cases."""

    def room(self, nbytes: int) -> int:
        """Return how many of `nbytes` the slots of a side can have now."""

    def slot_bytes(self, case: Case, like: TimedSlots) -> int:
        """Return the bytes that a slot takes; the kernels have been called on the slots `like`."""

    def open(self, case: Case, slots: int, like: TimedSlots | None = None) -> TimedSlots:
        """Return new slots; earlier ones (`like`) show what the kernels return."""
