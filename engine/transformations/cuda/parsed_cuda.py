"""A CUDA or HIP source as transformations see it: the functions that run on the device.

The grammar is that of C. Functions in which it finds an error, such as some templates and functions
that launch kernels, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from tree_sitter import Node

from engine.transformations.c.parsed_c import ParsedC
from engine.transformations.transformation import Replacement
from harness.search.space import c_knobs
from harness.search.space.knob_proposals import NEW_MARK

_CONSTANT = re.compile(r"\bconstexpr int (\w+) = (\d+);")
_ON_DEVICE = re.compile(r"\b__(?:global|device)__\b")


class ParsedCuda(ParsedC):
    """The tree of a CUDA or HIP source."""

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
