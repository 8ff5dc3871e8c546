"""`triton-narrow-offsets`: 64 bits for a block's first address only, 32 for its lanes' offsets.

`pointer + (row64 * stride + lanes)` adds each lane in 64 bits. `pointer + row64 * stride + lanes`
is the same address, as a 32-bit offset is extended where it meets the pointer.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from engine.transformations.transformation import (
    MOST_PLACES,
    DoesNotApply,
    Replacement,
    Transformation,
    Transformed,
)
from engine.transformations.triton.name_uses import names, stored
from engine.transformations.triton.parsed_triton import ParsedTriton
from engine.transformations.triton.scalars.block_names import block_names, is_block


class NarrowOffsets(Transformation):
    name = "triton-narrow-offsets"
    aim = "offsets of lanes in 32 bits, and 64 bits only for where a block begins"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        found = [own for function in parsed.kernels.values() for own in _narrowed(parsed, function)]
        if not found:
            raise DoesNotApply("no address adds lanes to a 64-bit number before the pointer")
        parsed.edit(*(Replacement(*parsed.span(node), text) for node, text in found[:MOST_PLACES]))
        return parsed.transformed("32-bit offsets of lanes",
                                  [node.lineno for node, _ in found[:MOST_PLACES]])


def _narrowed(parsed: ParsedTriton, function: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """Yield the addresses that can be written with 32-bit offsets, and how."""
    values, blocks = _single_values(function), block_names(parsed, function)
    pointers = {own.arg for own in function.args.args if own.annotation is None}
    for call in (*parsed.calls(function, "load"), *parsed.calls(function, "store")):
        address = head = call.args[0]
        summed, wide, lanes = False, list[ast.expr](), list[ast.expr]()
        while isinstance(head, ast.BinOp) and isinstance(head.op, ast.Add):
            inner = [_narrow(parsed, own) for own in _addends(parsed, head.right, values)]
            big = [own for own in inner if _is_wide(parsed, own, values)]
            small = [own for own in inner if own not in big]
            summed |= bool(big) and any(is_block(parsed, own, blocks) for own in small)
            wide, lanes, head = [*big, *wide], [*small, *lanes], head.left
        if not summed or not isinstance(head, ast.Name) or head.id not in pointers \
                or head.id in blocks or any(is_block(parsed, own, blocks) for own in wide):
            continue
        parts = [head, *wide, *lanes]
        yield address, " + ".join(ast.unparse(part) if isinstance(
            part, ast.Name | ast.Call | ast.Subscript) or _is_product(part)
            else f"({ast.unparse(part)})" for part in parts)


def _single_values(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the values of names that are assigned once, from names that never change."""
    count = Counter(stored(function))
    parameters = {own.arg for own in function.args.args}
    return {own.targets[0].id: own.value for own in ast.walk(function)
            if isinstance(own, ast.Assign) and isinstance(own.targets[0], ast.Name)
            and count[own.targets[0].id] == 1 and own.targets[0].id not in parameters
            and all(count[name] <= (name not in parameters) for name in names(own.value))}


def _addends(parsed: ParsedTriton, node: ast.expr, values: Mapping[str, ast.expr],
             ) -> list[ast.expr]:
    """Return the terms of a 64-bit sum; a 32-bit sum is a single term, because it may wrap."""
    if not _is_wide(parsed, node, values):
        return [node]
    if isinstance(node, ast.Name) and isinstance(values.get(node.id), ast.BinOp):
        return _addends(parsed, values[node.id], values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_addends(parsed, node.left, values), *_addends(parsed, node.right, values)]
    return [node]


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _is_wide(parsed: ParsedTriton, node: ast.expr, values: Mapping[str, ast.expr]) -> bool:
    """Return whether a value is one of 64 bits, or computed from one."""
    if isinstance(node, ast.Name) and node.id in values:
        return _is_wide(parsed, values[node.id], values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
        return _is_wide(parsed, node.left, values) or _is_wide(parsed, node.right, values)
    return _of_cast(parsed, node) is not None


def _narrow(parsed: ParsedTriton, node: ast.expr) -> ast.expr:
    """Return a block of lanes without a cast to 64 bits, which it does not need."""
    inner = _of_cast(parsed, node)
    return inner if inner is not None and parsed.is_call(inner, "arange") else node


def _of_cast(parsed: ParsedTriton, node: ast.expr) -> ast.expr | None:
    """Return the operand of a cast to 64 bits, None for any other node."""
    wide = f"{parsed.language}.int64"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
            and node.func.attr == "to" and [ast.unparse(own) for own in node.args] == [wide]:
        return node.func.value
    if isinstance(node, ast.Call) and parsed.is_call(node, "cast") and len(node.args) == 2 \
            and ast.unparse(node.args[1]) == wide:
        return node.args[0]
    return None
