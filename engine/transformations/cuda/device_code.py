"""Transformations of device code: unrolled loops, and those of C that hold within one thread.

The grammar is that of C. Functions in which it finds an error, such as some templates and functions
that launch kernels, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from tree_sitter import Node

from engine.split.languages.syntax import parts
from engine.transformations.c.accumulators import Accumulators
from engine.transformations.c.compiler_hints import Restrict
from engine.transformations.c.invariants import Reciprocal
from engine.transformations.c.parsed_c import LOOPS, ParsedC
from engine.transformations.transformation import (
    Replacement,
    Transformation,
    Transformed,
    first_places,
)
from harness.search.space import c_knobs
from harness.search.space.knob_proposals import NEW_MARK

_CONSTANT = re.compile(r"\bconstexpr int (\w+) = (\d+);")
_ON_DEVICE = re.compile(r"\b__(?:global|device)__\b")


class ParsedCuda(ParsedC):
    """A CUDA or HIP source as transformations see it: the functions that run on the device."""

    restrict = "__restrict__"
    tolerates_errors = True

    @cached_property
    def functions(self) -> tuple[Node, ...]:
        """The functions that run on the device and were parsed without an error."""
        return tuple(node for node in super().functions if self._is_on_device(node))

    @cached_property
    def constants(self) -> dict[str, str]:
        """The macros and constants that stand for a number, with the number's text."""
        return {**super().constants, **dict(_CONSTANT.findall(self.source))}

    def _is_on_device(self, function: Node) -> bool:
        body = function.child_by_field_name("body")
        assert body is not None
        before = max(self.source.rfind(mark, 0, function.start_byte) for mark in ";}")
        return _ON_DEVICE.search(self.source, before + 1, body.start_byte) is not None

    def _declarations(self) -> Iterator[Replacement]:
        """Declare knobs as constants: not all compilers expand macros in `#pragma unroll`."""
        at = c_knobs.after_includes(self.source)
        for knob in self.knobs:
            yield Replacement(at, at, f"constexpr int {knob.name} = {knob.value};  "
                                      f"{knob.declared('//', NEW_MARK)}\n")


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
