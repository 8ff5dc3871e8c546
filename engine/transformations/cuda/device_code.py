"""Transformations of device code: unrolled loops, and those of C that hold within one thread."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from engine.split.languages.syntax import parts
from engine.transformations.c.accumulators import Accumulators
from engine.transformations.c.compiler_hints import Restrict
from engine.transformations.c.invariants import Reciprocal
from engine.transformations.c.parsed_c import LOOPS
from engine.transformations.cuda.parsed_cuda import ParsedCuda
from engine.transformations.transformation import Transformation, Transformed, first_places


class CudaAccumulators(Accumulators):
    name = "cuda-accumulators"
    parsed = ParsedCuda


class CudaReciprocal(Reciprocal):
    name = "cuda-reciprocal"
    parsed = ParsedCuda


class CudaRestrict(Restrict):
    name = "cuda-restrict"
    aim = "pointers that are promised not to overlap (__restrict__), so that loads come early"
    parsed = ParsedCuda


class UnrolledLoops(Transformation):
    name = "cuda-unrolled-loops"
    aim = "unrolled loops, so that a thread has several loads in flight"

    def apply(self, source: str) -> Transformed:
        cuda = ParsedCuda(source)
        loops = first_places(_innermost_loops(cuda),
                             "no function of the device has a loop without a pragma")
        for loop in loops:
            knob = cuda.knob("UNROLL", 4, (1, 2, 4, 8, 16, 32),
                             f"iterations, line {cuda.line(loop)}")
            cuda.insert(loop.start_byte, f"#pragma unroll {knob.name}\n{cuda.indent(loop)}")
        return cuda.transformed("unrolled loops", [cuda.line(loop) for loop in loops])


def _innermost_loops(cuda: ParsedCuda) -> Iterator[Node]:
    """Yield the innermost `for` loops that are first on their line and have no pragma."""
    for function in cuda.functions:
        for loop in parts(function, "for_statement"):
            body = loop.child_by_field_name("body")
            begin = cuda.source.rfind("\n", 0, loop.start_byte) + 1
            before = cuda.text(loop.prev_sibling).strip()
            if body is not None and not any(parts(body, *LOOPS)) \
                    and not cuda.source[begin:loop.start_byte].strip() \
                    and not before.startswith(("#", "_Pragma")):
                yield loop
