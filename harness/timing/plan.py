"""The plan of a measurement: what is timed, in how many pairs and blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from harness.timing import stats

Score = Literal["kernel", "wall"]
Cache = Literal["warm", "cold"]
Effort = Literal["quick", "normal", "thorough"]
"""How long to measure. A quick verdict is a first impression, and nothing is kept because of it."""

BLOCK_NS = 2_000_000
GPU_BLOCK_NS = 3_000_000
WARM_NS = 4_000_000
BLOCKS, GPU_BLOCKS = 6, 4
LONG = 3
"""Half of the blocks have this many times the calls of the others: see clock_check."""
MOST_COPIES = 512
GPU_LOOKS = (3, 5, 8, 12, 18)
"""Process pairs on a GPU differ by about 0.1 %, so three are enough for a large change."""
QUICK_LOOKS, QUICK_BLOCKS = (3, 5), 4
THOROUGH_LOOKS, THOROUGH_MARGIN = (6, 9, 13, 18, 26, 36), 0.005
MOST_SLOTS = 1024
RING_BYTES = 16 << 20
"""Bytes of a class's slots on the CPU; its last-level cache may hold that many."""
LARGEST_RING = 4 << 30
MORE_BLOCKS = 4
"""If memory allows only short blocks, their number grows up to this many times."""


@dataclass(frozen=True, kw_only=True)
class BlockSizes:
    """Calls of a short block, the relative length of a long one, and the number of blocks."""

    calls: int
    long: int
    blocks: int

    @property
    def slots(self) -> int:
        """Number of slots: one for each call of a long block, and one for a call before it."""
        return self.calls * self.long + 1

    def factor(self, block: int) -> int:
        """Return the length of a block relative to a short one: 1, 3, 3, 1, repeated."""
        return self.long if block % 4 in (1, 2) else 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings of a measurement; `looks` are numbers of process pairs after which it may stop.

    `alpha` is the error rate of the whole verdict. `score` selects which of a GPU's two times is
    judged, that of the kernels alone or that of whole calls; the other must not be longer. With
    `cache_bytes` the inputs of a call are in no cache. `by_host` uses only the host's clock, since
    several cards share none. `ring_bytes` is the memory for the slots of a class on one side.
    """

    looks: tuple[int, ...] = stats.LOOKS
    alpha: float = 0.001
    margin: float = 0.01
    tolerance: float = 0.01
    blocks: int = BLOCKS
    block_ns: int = BLOCK_NS
    warm_ns: int = WARM_NS
    score: Score = "kernel"
    cache: Cache = "cold"
    cache_bytes: int = 0
    by_host: bool = False
    effort: Effort = "normal"
    ring_bytes: int = RING_BYTES
    largest_ring: int = LARGEST_RING

    def with_effort(self, effort: Effort) -> Plan:
        """Return the plan of a quick or a thorough verdict, at the same error rate."""
        if effort == "quick":
            return replace(self, effort=effort, looks=QUICK_LOOKS, blocks=QUICK_BLOCKS)
        if effort == "thorough":
            return replace(self, effort=effort, looks=THOROUGH_LOOKS,
                           margin=min(self.margin, THOROUGH_MARGIN))
        return self

    def with_looks(self, looks: tuple[int, ...]) -> Plan:
        """Return the plan with these looks if it has the usual ones.

        The number of looks stays, and with it the error rate of each.
        """
        is_usual = self.looks == stats.LOOKS[:len(self.looks)]
        return replace(self, looks=looks[:len(self.looks)]) if is_usual else self

    def describe_effort(self, unit: str = "process pairs") -> str:
        """Return how a quick or thorough verdict differs from others, empty for a normal one."""
        if self.effort == "quick":
            return f"quick: at most {self.looks[-1]} {unit}, so only large gains are certain; " \
                "nothing is kept on a quick verdict"
        if self.effort == "thorough":
            return f"thorough: up to {self.looks[-1]} {unit}, and gains of at least " \
                f"{self.margin:.2%} count"
        return ""

    @property
    def alpha_look(self) -> float:
        return stats.alpha_per_look(self.alpha, len(self.looks))

    @property
    def screening(self) -> bool:
        """Whether the pairs are too few for findings: a verdict judges what a screening passes."""
        return self.looks[-1] < 2

    def copies(self, footprint: int) -> int:
        """Return the number of copies of a call's buffers in a screening, given their bytes."""
        if not self.cache_bytes or footprint >= 2 * self.cache_bytes:
            return 1
        return min(MOST_COPIES, math.ceil(2 * self.cache_bytes / max(1, footprint)))

    def within(self, ring_bytes: int) -> Plan:
        """Return the plan with at most `ring_bytes` of memory for slots."""
        return self if ring_bytes >= self.ring_bytes else replace(
            self, ring_bytes=ring_bytes, largest_ring=ring_bytes)

    def sizes(self, slot_bytes: int, call_ns: float) -> BlockSizes:
        """Return the sizes of blocks for calls of `call_ns` (nanoseconds) on slots of `slot_bytes`.

        A short block takes `block_ns` if the slots of a long one fit into the memory.
        """
        desired = max(1, round(self.block_ns / max(call_ns, 1.0)))
        fitting = (min(MOST_SLOTS, self.ring_bytes // slot_bytes) - 1) // LONG
        if fitting < 1 and (LONG + 1) * slot_bytes > self.largest_ring:
            return BlockSizes(calls=1, long=1, blocks=self.blocks)
        calls = max(1, min(desired, fitting))
        more = min(MORE_BLOCKS, desired // calls)
        return BlockSizes(calls=calls, long=LONG, blocks=self.blocks * more)


SCREEN = Plan(looks=(1,), blocks=4, block_ns=750_000, warm_ns=1_500_000)
"""One short pair: enough to rank the trials of a search, never a verdict."""
