"""Names the block size in a task's launch, so that the source may define it as a knob."""

from __future__ import annotations

import re
from dataclasses import replace

from harness.search.space import c_knobs, knob_proposals
from harness.tasks.target import Launch


def with_block_constant(launch: Launch, kernel: str, source: str) -> Launch:
    """Return a launch whose number of threads in a block is a constant that the source may define.

    The constant also replaces that number in the grid and in the size of shared memory. The launch
    is returned unchanged if blocks have several dimensions, if their size is an expression or not
    from WARP to MOST_THREADS, if the source has the constant's name already, or if the source
    itself launches the kernel with another size.
    """
    threads, *others = launch.block
    name = knob_proposals.block_knob(kernel)
    in_source = c_knobs.block_of(source, kernel)
    if not isinstance(threads, int) or not c_knobs.WARP <= threads <= c_knobs.MOST_THREADS \
            or any(other != 1 for other in others) or re.search(rf"\b{name}\b", source) \
            or (c_knobs.is_launched(source, kernel) and (
                in_source is None or in_source.value != threads)):
        return launch

    def in_constant(size: int | str) -> int | str:
        if isinstance(size, int):
            return size
        return re.sub(rf"(?<![\w.]){threads}(?![\w.])", name, re.sub(
            rf"(?<![\w.]){threads - 1}(?![\w.])", f"({name} - 1)", size))

    return replace(launch, grid=tuple(map(in_constant, launch.grid)), block=(name, *others),
                   shared_bytes=in_constant(launch.shared_bytes), defaults={name: threads})
