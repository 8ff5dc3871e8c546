"""The launch of a `__global__` function in a new task."""

from __future__ import annotations

import argparse

from engine.discovery.new import draft_kernel
from engine.discovery.new.launch_constant import with_block_constant
from engine.discovery.project.sources import CFunction
from harness.tasks.target import Launch
from kopt_tui.cli.prompt import Prompt


def choose(function: CFunction, args: argparse.Namespace, prompt: Prompt,
           source: str) -> Launch | None:
    """Return the launch of a `__global__` function: the source's own, but for what flags say.

    A knob may change its block where the source can define a constant for it.
    """
    if not function.is_global:
        return None
    known, names = function.launch, "the sizes, scalars and constants of the source"
    grid, block, shared = (
        draft_kernel.parse_dims(flag) if flag is not None else own
        for flag, own in ((args.grid, known and known.grid), (args.block, known and known.block),
                          (args.shared, (known.shared_bytes,) if known else (0,))))
    grid = grid or draft_kernel.parse_dims(prompt.text(f"grid (in {names})", "--grid DIMS"))
    block = block or draft_kernel.parse_dims(prompt.text(f"block (in {names})", "--block DIMS"))
    return with_block_constant(Launch(grid=grid, block=block, shared_bytes=(shared or (0,))[0]),
                               function.name, source)
