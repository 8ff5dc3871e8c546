"""All transformations of Triton sources, those that win most often first."""

from __future__ import annotations

from engine.transformations.transformation import Transformation
from engine.transformations.triton.fusion.fused_launches import FusedLaunches
from engine.transformations.triton.invariant_loads import InvariantLoads
from engine.transformations.triton.launch_knobs import LaunchKnobs
from engine.transformations.triton.loops import EvictionHints, GroupedOrder, PipelinedLoops
from engine.transformations.triton.persistent_grid import PersistentGrid
from engine.transformations.triton.rows_per_program import RowsPerProgram
from engine.transformations.triton.scalars import BlockReciprocal, NarrowOffsets
from engine.transformations.triton.unmasked_loops import UnmaskedLoops

TRITON_TRANSFORMATIONS: tuple[Transformation, ...] = (
    FusedLaunches(), LaunchKnobs(), RowsPerProgram(), UnmaskedLoops(), GroupedOrder(),
    EvictionHints(), PersistentGrid(), PipelinedLoops(), InvariantLoads(), BlockReciprocal(),
    NarrowOffsets())
