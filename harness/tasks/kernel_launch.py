"""How a `__global__` function is launched: its grid, its blocks, its dynamic shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import InputError
from harness.formats.expression import whole

AXES = 3


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The launch of one call: whole numbers, or expressions in names that `sizes` gets.

    Names are the sizes of the config class, the scalar arguments, and the constants of the source
    (`#define TILE 256`, `constexpr int TILE = 256`), so that a knob may change the launch.
    """

    grid: tuple[int | str, ...]
    block: tuple[int | str, ...]
    shared_bytes: int | str = 0

    def fault(self) -> str:
        """Return why it cannot be a launch, "" if it can."""
        for name, axes in (("grid", self.grid), ("block", self.block)):
            if not 1 <= len(axes) <= AXES:
                return f"a {name} has 1 to {AXES} dimensions, not {len(axes)}"
        return ""

    def sizes(self, names: Mapping[str, int]) -> tuple[int, ...]:
        """Return grid x, y, z, block x, y, z and the bytes of shared memory. Raises InputError."""
        axes = [[whole(axis, names) for axis in each] for each in (self.grid, self.block)]
        grid, block = ([*each, 1, 1][:AXES] for each in axes)
        shared = whole(self.shared_bytes, names)
        if min(*grid, *block) < 1 or shared < 0:
            raise InputError(f"a grid of {grid} blocks of {block} threads with {shared} bytes "
                             "cannot be launched")
        return *grid, *block, shared
