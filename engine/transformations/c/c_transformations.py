"""All transformations of C sources, those that win most often first."""

from __future__ import annotations

from engine.transformations.c.accumulators import Accumulators
from engine.transformations.c.compiler_hints import RelaxedMath, Restrict, VectorMath
from engine.transformations.c.invariants import Hoist, Reciprocal
from engine.transformations.c.loop_order import Blocking, LoopOrder
from engine.transformations.c.unroll_and_jam import UnrollAndJam
from engine.transformations.transformation import Transformation

C_TRANSFORMATIONS: tuple[Transformation, ...] = (
    LoopOrder(), RelaxedMath(), UnrollAndJam(), VectorMath(), Blocking(), Accumulators(),
    Reciprocal(), Hoist(), Restrict())
