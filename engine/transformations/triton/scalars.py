"""Transformations that separate scalar work from work on the lanes of a block.

`triton-reciprocal`: a block divided by a number is a product with the number's reciprocal.

`triton-narrow-offsets`: 64 bits for a block's first address only, 32 for its lanes' offsets.
`pointer + (row64 * stride + lanes)` adds each lane in 64 bits. `pointer + row64 * stride + lanes`
is the same address, as a 32-bit offset is extended where it meets the pointer.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from engine.transformations.transformation import Transformation, Transformed, first_places
from engine.transformations.triton.parsed_triton import ParsedTriton, names, stored, target_of

_REDUCTIONS = ("sum", "max", "min", "reduce", "program_id", "num_programs", "cdiv")


class BlockReciprocal(Transformation):
    name = "triton-reciprocal"
    aim = "divisions of blocks by one number as products with its reciprocal, computed once"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        places = first_places(
            (node for function in parsed.kernels.values()
             for blocks in [_block_names(parsed, function)] for node in ast.walk(function)
             if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
             and _is_block(parsed, node.left, blocks) and not _is_block(parsed, node.right, blocks)
             and not isinstance(node.right, ast.Constant)),
            "no kernel divides a block by a scalar")
        for node in places:
            sign = source.index("/", parsed.span(node.left)[1])
            parsed.put(sign, sign + 1, "*")
            parsed.put(*parsed.span(node.right), f"(1.0 / ({parsed.text(node.right)}))")
        return parsed.transformed("products with a reciprocal", [node.lineno for node in places])


class NarrowOffsets(Transformation):
    name = "triton-narrow-offsets"
    aim = "offsets of lanes in 32 bits, and 64 bits only for where a block begins"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        places = first_places(
            (place for function in parsed.kernels.values()
             for place in _narrowed(parsed, function)),
            "no address adds lanes to a 64-bit number before the pointer")
        for node, text in places:
            parsed.put(*parsed.span(node), text)
        return parsed.transformed("32-bit offsets of lanes", [node.lineno for node, _ in places])


def _narrowed(parsed: ParsedTriton, function: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """Yield the addresses that can be written with 32-bit offsets, each with its new text."""
    values, blocks = _constant_values(parsed, function), _block_names(parsed, function)
    pointers = {parameter.arg for parameter in function.args.args if parameter.annotation is None}
    for call in (*parsed.calls(function, "load"), *parsed.calls(function, "store")):
        address = head = call.args[0]
        summed, wide, lanes = False, list[ast.expr](), list[ast.expr]()
        while isinstance(head, ast.BinOp) and isinstance(head.op, ast.Add):
            inner = [_narrow(parsed, addend) for addend in _addends(parsed, head.right, values)]
            big = [addend for addend in inner if _is_wide(parsed, addend, values)]
            small = [addend for addend in inner if addend not in big]
            summed |= bool(big) and any(_is_block(parsed, addend, blocks) for addend in small)
            wide, lanes, head = [*big, *wide], [*small, *lanes], head.left
        if not summed or not isinstance(head, ast.Name) or head.id not in pointers \
                or head.id in blocks or any(_is_block(parsed, addend, blocks) for addend in wide):
            continue
        parts = [head, *wide, *lanes]
        yield address, " + ".join(map(_as_addend, parts))


def _as_addend(node: ast.expr) -> str:
    """Return a value as text, in brackets unless it is safe in a sum without them."""
    match node:
        case ast.Name() | ast.Call() | ast.Subscript() | ast.BinOp(op=ast.Mult()):
            return ast.unparse(node)
    return f"({ast.unparse(node)})"


def _constant_values(parsed: ParsedTriton, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the values of names that are assigned once, from names that never change."""
    count = Counter([*stored(function), *parsed.parameters(function)])
    return {name: value for name, value in parsed.single_values(function).items()
            if all(count[used] <= 1 for used in names(value))}


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


def _is_wide(parsed: ParsedTriton, node: ast.expr, values: Mapping[str, ast.expr]) -> bool:
    """Return whether a value is cast to 64 bits, or computed from one that is."""
    if isinstance(node, ast.Name) and node.id in values:
        return _is_wide(parsed, values[node.id], values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
        return _is_wide(parsed, node.left, values) or _is_wide(parsed, node.right, values)
    return parsed.widened(node) is not None


def _narrow(parsed: ParsedTriton, node: ast.expr) -> ast.expr:
    """Return an `arange` without its cast to 64 bits, and any other value unchanged."""
    inner = parsed.widened(node)
    return inner if inner is not None and parsed.is_call(inner, "arange") else node


def _block_names(parsed: ParsedTriton, function: ast.FunctionDef) -> set[str]:
    """Return the names that are blocks of values, rather than one number."""
    blocks, size = set[str](), -1
    while len(blocks) != size:
        size = len(blocks)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign) and _is_block(
                    parsed, node.value, blocks):
                blocks.update(names(target_of(node)))
    return blocks


def _is_block(parsed: ParsedTriton, node: ast.AST, blocks: set[str]) -> bool:
    """Return whether a value surely has lanes; the result of a reduction counts as a number."""
    if isinstance(node, ast.Call):
        if parsed.is_call(node, "arange", "zeros", "full"):
            return True
        if parsed.is_call(node, *_REDUCTIONS):
            return False
    if isinstance(node, ast.Name):
        return node.id in blocks
    return any(_is_block(parsed, part, blocks) for part in ast.iter_child_nodes(node))
