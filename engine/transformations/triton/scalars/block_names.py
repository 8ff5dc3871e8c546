"""Which names of a kernel are blocks of values, and which are scalars."""

from __future__ import annotations

import ast

from engine.transformations.triton.name_uses import names, target_of
from engine.transformations.triton.parsed_triton import ParsedTriton

_REDUCTIONS = ("sum", "max", "min", "reduce", "program_id", "num_programs", "cdiv")


def block_names(parsed: ParsedTriton, function: ast.FunctionDef) -> set[str]:
    """Return the names that are blocks of values, rather than one number."""
    blocks, size = set[str](), -1
    while len(blocks) != size:
        size = len(blocks)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign) and is_block(
                    parsed, node.value, blocks):
                blocks.update(names(target_of(node)))
    return blocks


def is_block(parsed: ParsedTriton, node: ast.AST, blocks: set[str]) -> bool:
    """Return whether a value surely has lanes; the result of a reduction counts as a number."""
    if isinstance(node, ast.Call):
        if parsed.is_call(node, "arange") or parsed.is_call(node, "zeros") \
                or parsed.is_call(node, "full"):
            return True
        if any(parsed.is_call(node, name) for name in _REDUCTIONS):
            return False
    if isinstance(node, ast.Name):
        return node.id in blocks
    return any(is_block(parsed, own, blocks) for own in ast.iter_child_nodes(node))
