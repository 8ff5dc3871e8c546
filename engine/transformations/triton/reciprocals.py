"""`triton-reciprocal`: a block divided by a number is a product with the number's reciprocal."""

from __future__ import annotations

import ast

from engine.transformations.transformation import (
    MOST_PLACES,
    DoesNotApply,
    Replacement,
    Transformation,
    Transformed,
    places,
    replaced,
)
from engine.transformations.triton.parsed_triton import ParsedTriton

_REDUCTIONS = ("sum", "max", "min", "reduce", "program_id", "num_programs", "cdiv")


class BlockReciprocal(Transformation):
    name = "triton-reciprocal"
    language = "triton"
    aim = "divisions of blocks by one number as products with its reciprocal, computed once"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        found = [node for function in parsed.kernels.values()
                 for blocks in [_blocks(parsed, function)] for node in ast.walk(function)
                 if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
                 and _is_block(parsed, node.left, blocks)
                 and not _is_block(parsed, node.right, blocks)
                 and not isinstance(node.right, ast.Constant)]
        if not found:
            raise DoesNotApply("no kernel divides a block by one number")
        edits = [edit for node in found[:MOST_PLACES] for edit in _edits(parsed, node)]
        return Transformed(source=replaced(source, edits), what=(
            "products with a reciprocal, "
            f"{places([node.lineno for node in found[:MOST_PLACES]])}"))


def _edits(parsed: ParsedTriton, node: ast.BinOp) -> list[Replacement]:
    """Return the edits of the sign and the divisor; what stands around them stays."""
    begin = parsed.span(node.left)[1]
    right = parsed.span(node.right)
    sign = parsed.source.index("/", begin)
    return [Replacement(sign, sign + 1, "*"),
            Replacement(*right, f"(1.0 / ({parsed.text(node.right)}))")]


def _blocks(parsed: ParsedTriton, function: ast.FunctionDef) -> set[str]:
    """Return the names that are blocks of values, rather than one number."""
    blocks, size = set[str](), -1
    while len(blocks) != size:
        size = len(blocks)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign) and _is_block(
                    parsed, node.value, blocks):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                blocks |= {own.id for own in ast.walk(target) if isinstance(own, ast.Name)}
    return blocks


def _is_block(parsed: ParsedTriton, node: ast.AST, blocks: set[str]) -> bool:
    if isinstance(node, ast.Call):
        if parsed.is_call(node, "arange") or parsed.is_call(node, "zeros") \
                or parsed.is_call(node, "full"):
            return True
        if any(parsed.is_call(node, name) for name in _REDUCTIONS):
            return False
    if isinstance(node, ast.Name):
        return node.id in blocks
    return any(_is_block(parsed, own, blocks) for own in ast.iter_child_nodes(node))
