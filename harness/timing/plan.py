"""How hard a measurement looks, and what it measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.timing import stats

Score = Literal["kernel", "wall"]
Cache = Literal["warm", "cold"]

BLOCK_NS = 2_000_000
GPU_BLOCK_NS = 3_000_000
WARM_NS = 4_000_000
BLOCKS = 6
LONG = 3
"""Half of the blocks hold so many times the calls of the others: see `clock`."""
MOST_COPIES = 512


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How hard to look: `looks` are numbers of process pairs, `alpha` is for the whole verdict.

    `score` says which of a GPU's two times is judged, of the kernels alone or of calls as they
    are launched; the other one must agree. With `cache_bytes`, calls rotate through copies of
    their buffers, twice as many bytes as that cache holds. `by_host`: only the host's clock counts,
    since several cards have none in common.
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

    @property
    def alpha_look(self) -> float:
        return stats.alpha_per_look(self.alpha, len(self.looks))

    @property
    def screening(self) -> bool:
        """Too few pairs to accuse anyone: what a screening lets pass, a verdict will judge."""
        return self.looks[-1] < 2

    def copies(self, footprint: int) -> int:
        """Return in how many copies the buffers of a call, so many bytes, are wanted."""
        if not self.cache_bytes or footprint >= 2 * self.cache_bytes:
            return 1
        return min(MOST_COPIES, math.ceil(2 * self.cache_bytes / max(1, footprint)))

    def factor(self, block: int) -> int:
        """Return the length of a block in short ones: 1, 3, 3, 1, and again."""
        return LONG if block % 4 in (1, 2) else 1


SCREEN = Plan(looks=(1,), blocks=4, block_ns=750_000, warm_ns=1_500_000)
"""One short look: enough to rank the trials of a search, never a verdict."""
