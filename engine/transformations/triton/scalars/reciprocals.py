"""`triton-reciprocal`: a block divided by a number is a product with the number's reciprocal."""

from __future__ import annotations

import ast

from engine.transformations.transformation import (
    MOST_PLACES,
    DoesNotApply,
    Replacement,
    Transformation,
    Transformed,
)
from engine.transformations.triton.parsed_triton import ParsedTriton
from engine.transformations.triton.scalars.block_names import block_names, is_block


class BlockReciprocal(Transformation):
    name = "triton-reciprocal"
    aim = "divisions of blocks by one number as products with its reciprocal, computed once"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        found = [node for function in parsed.kernels.values()
                 for blocks in [block_names(parsed, function)] for node in ast.walk(function)
                 if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
                 and is_block(parsed, node.left, blocks)
                 and not is_block(parsed, node.right, blocks)
                 and not isinstance(node.right, ast.Constant)]
        if not found:
            raise DoesNotApply("no kernel divides a block by one number")
        for node in found[:MOST_PLACES]:
            sign = source.index("/", parsed.span(node.left)[1])
            parsed.edit(Replacement(sign, sign + 1, "*"), Replacement(
                *parsed.span(node.right), f"(1.0 / ({parsed.text(node.right)}))"))
        return parsed.transformed("products with a reciprocal",
                                  [node.lineno for node in found[:MOST_PLACES]])
