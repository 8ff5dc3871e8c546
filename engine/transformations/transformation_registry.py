"""The transformations by name, and which of them apply to a source."""

from __future__ import annotations

import logging
import re

import msgspec

from engine.transformations.c.accumulators import Accumulators
from engine.transformations.c.compiler_hints import RelaxedMath, Restrict, VectorMath
from engine.transformations.c.entry_only import EntryOnly
from engine.transformations.c.invariants import Hoist, Reciprocal
from engine.transformations.c.loop_order import Blocking, LoopOrder
from engine.transformations.c.unroll_and_jam import UnrollAndJam
from engine.transformations.cuda import needed_kernels
from engine.transformations.cuda.device_code import (
    CudaAccumulators,
    CudaReciprocal,
    CudaRestrict,
    UnrolledLoops,
)
from engine.transformations.transformation import DoesNotApply, Transformation, Transformed
from engine.transformations.triton.fusion.fused_launches import FusedLaunches
from engine.transformations.triton.invariant_loads import InvariantLoads
from engine.transformations.triton.launch_knobs import LaunchKnobs, RegisterLimit
from engine.transformations.triton.loops import EvictionHints, GroupedOrder, PipelinedLoops
from engine.transformations.triton.persistent_grid import PersistentGrid
from engine.transformations.triton.rows_per_program import RowsPerProgram
from engine.transformations.triton.scalars import BlockReciprocal, NarrowOffsets
from engine.transformations.triton.unmasked_loops import UnmaskedLoops
from harness.errors import InputError
from harness.search.space import python_entry
from harness.tasks.target import OF_CARD

BY_LANGUAGE: dict[str, tuple[Transformation, ...]] = {
    "c": (LoopOrder(), RelaxedMath(), UnrollAndJam(), VectorMath(), Blocking(), Accumulators(),
          Reciprocal(), Hoist(), Restrict()),
    "triton": (FusedLaunches(), LaunchKnobs(), RowsPerProgram(), UnmaskedLoops(), GroupedOrder(),
               EvictionHints(), RegisterLimit(), PersistentGrid(), PipelinedLoops(),
               InvariantLoads(), BlockReciprocal(), NarrowOffsets()),
    **dict.fromkeys(("cuda", "hip"), (UnrolledLoops(), CudaAccumulators(), CudaRestrict(),
                                      CudaReciprocal()))}
"""All transformations, those that win most often first."""
TRANSFORMATIONS = tuple(each for name in ("c", "triton", "cuda") for each in BY_LANGUAGE[name])
log = logging.getLogger("kopt.engine")
LONGEST_SOURCE = 100_000
"""Characters of the longest source that is looked at."""


class ApplicableChange(msgspec.Struct, frozen=True, kw_only=True):
    """A transformation that applies to a source, what it would change there, and its knobs."""

    name: str
    what: str
    knobs: tuple[str, ...] = ()
    path: str = ""
    """The file that it changes, "" for the kernel's own source."""

    @property
    def option(self) -> str:
        """Return the `option` of a task that makes this change."""
        return f"{self.name}:{self.path}" if self.path else self.name


def find(name: str) -> Transformation | None:
    return next((each for each in TRANSFORMATIONS if each.name == name), None)


def of_option(option: str) -> tuple[str, str]:
    """Return the transformation and the path that a task's `option` names."""
    name, _, path = option.partition(":")
    return name, path


def language_of(source: str, language: str) -> str:
    """Return the language whose transformations a source gets: a Python file may hold Triton."""
    return "triton" if language == "python" and re.search(r"\btriton\.jit\b", source) else language


def apply(transformation: Transformation, source: str, language: str, entry: str) -> Transformed:
    """Return the changed source. Only `entry` and what it needs change, if it is known.

    Raises DoesNotApply, or InputError if it cannot be parsed.
    """
    if language in ("triton", "python"):
        changed = transformation.apply(python_entry.shown(source, entry))
        return msgspec.structs.replace(changed, source=python_entry.restored(changed.source))
    if not entry:
        return transformation.apply(source)
    if language in OF_CARD:
        changed = transformation.apply(needed_kernels.shown(source, entry))
        return msgspec.structs.replace(changed, source=needed_kernels.restored(changed.source))
    shown = EntryOnly(source, entry)
    changed = transformation.apply(shown.source)
    return msgspec.structs.replace(changed, source=shown.restored(changed.source))


def applicable(source: str, language: str, entry: str = "") -> tuple[ApplicableChange, ...]:
    """Return the transformations that apply to a source, in their order; see `apply`."""
    if len(source) > LONGEST_SOURCE:
        return ()
    changes = []
    for transformation in BY_LANGUAGE.get(language_of(source, language), ()):
        try:
            changed = apply(transformation, source, language, entry)
        except (DoesNotApply, InputError):
            continue
        except Exception:  # an unforeseen form of source must not end a campaign
            log.exception("%s failed on a source", transformation.name)
            continue
        changes.append(ApplicableChange(name=transformation.name, what=changed.what,
                                        knobs=changed.knobs))
    return tuple(changes)
