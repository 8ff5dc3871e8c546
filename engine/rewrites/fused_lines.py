"""Writes elementwise nodes as lines of Triton code into the marked places of a template."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine.rewrites.module_graph import ModuleGraph, Node, Ref
from engine.rewrites.template_catalog import Catalog

FLOATS = ("float32", "float16", "bfloat16")
LOADABLE = (*FLOATS, "bool", "uint8", "int8")
"""Dtypes of operands: float32 can hold their values."""


@dataclass(frozen=True)
class SizeOf:
    """The product of dimensions: of a tensor, or of the region's input if `tensor` is None."""

    tensor: Ref | None
    axes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Operand:
    """How a tensor that broadcasts to a shape is read at an element's index `at`.

    `index` is an expression in `at` and placeholders `{0}`, `{1}` for `sizes`, integers that the
    rewritten forward passes; "" for a single value.
    """

    index: str
    sizes: tuple[SizeOf, ...] = ()


def is_elementwise(graph: ModuleGraph, known: Catalog, node: Node) -> bool:
    """Return whether a node can be written as lines of Triton that can read its operands."""
    if node.written is not None or len(node.outputs) != 1 or node.form.dtype not in FLOATS:
        return False
    form_and_arguments = known.form(node)
    if form_and_arguments is None or not isinstance(node.bound.get("input"), Ref):
        return False
    _, arguments = form_and_arguments
    if arguments.get("alpha", 1) != 1 or arguments.get("rounding_mode") is not None:
        return False
    return all(graph.form(ref).dtype in LOADABLE and operand_of(
        graph, ref, node.form.shape, True) is not None for ref in node.reads)


def operand_of(graph: ModuleGraph, ref: Ref, shape: Sequence[int], sizes_known: bool,
               places: str = "") -> Operand | None:
    """Return how a tensor is read for elements of `shape`, None if it does not broadcast to it.

    Without `sizes_known` it is also None if the index needs a size of `shape` other than the
    product of the dimensions from the third on, which a template may name as `places`.
    """
    ref_shape = graph.form(ref).shape
    if math.prod(ref_shape) == 1:
        return Operand(index="")
    if ref_shape == tuple(shape):
        return Operand(index="at")
    if len(ref_shape) > len(shape):
        return None
    padded = (1,) * (len(shape) - len(ref_shape)) + tuple(ref_shape)
    if any(length not in (1, full) for length, full in zip(padded, shape, strict=True)):
        return None
    blocks = broadcast_blocks(padded, shape, range(len(shape)))
    operand = indexed(blocks, ref, len(shape) - len(ref_shape))
    unknown = [size for size in operand.sizes if size.tensor is None
               and not (places and is_channel_size(size, len(shape)))]
    return None if unknown and not sizes_known else operand


def is_channel_size(size: SizeOf, dims: int) -> bool:
    """Return whether a size is the product of a shape's dimensions from the third on."""
    return size.tensor is None and size.axes == tuple(range(2, dims))


def broadcast_blocks(padded: Sequence[int], shape: Sequence[int],
                     axes: Iterable[int]) -> list[tuple[bool, list[int]]]:
    """Return neighbouring axes together, and whether a tensor of shape `padded` has them."""
    blocks: list[tuple[bool, list[int]]] = []
    for axis in axes:
        if shape[axis] == 1:
            continue
        is_present = padded[axis] == shape[axis]
        if blocks and blocks[-1][0] == is_present:
            blocks[-1][1].append(axis)
        else:
            blocks.append((is_present, [axis]))
    return blocks


def indexed(blocks: Sequence[tuple[bool, list[int]]], ref: Ref, missing: int) -> Operand:
    """Return how a tensor is read that lacks its first `missing` axes and some of the blocks."""
    sizes: list[SizeOf] = []
    terms: list[str] = []
    own_axes = {axis for is_present, axes in blocks if is_present for axis in axes}

    def size(axes: Sequence[int]) -> str:
        whole = SizeOf(ref, tuple(axis - missing for axis in axes)) if own_axes >= set(axes) else \
            SizeOf(None, tuple(axes))
        if whole not in sizes:
            sizes.append(whole)
        return f"{{{sizes.index(whole)}}}"

    for number, (is_present, axes) in enumerate(blocks):
        if not is_present:
            continue
        inner = [axis for _, after in blocks[number + 1:] for axis in after]
        scale = [axis for before, after in blocks[number + 1:] if before for axis in after]
        term = f"(at // {size(inner)})" if inner else "at"
        term += f" % {size(axes)}" if number else ""
        terms.append(f"({term}) * {size(scale)}" if scale else term)
    return Operand(index=" + ".join(terms), sizes=tuple(sizes))


@dataclass(kw_only=True)
class FusedCode:
    """Lines for the two marked lines of one template, and the operands that they name, in order.

    `operands` maps each name to what the rewritten forward passes. `places` is the template's name
    of the product of the dimensions from the third on.
    """

    prologue: list[str] = field(default_factory=list)
    epilogue: list[str] = field(default_factory=list)
    operands: dict[str, Ref | SizeOf] = field(default_factory=dict)
    places: str = ""

    def name_of(self, value: Ref | SizeOf) -> str:
        for name, known in self.operands.items():
            if known == value:
                return name
        name = f"operand{len(self.operands)}" if isinstance(value, Ref) else \
            f"size{len(self.operands)}"
        self.operands[name] = value
        return name

    def write(self, graph: ModuleGraph, known: Catalog, nodes: Sequence[Node], first: Ref,
              variable: str) -> list[str]:
        """Return the lines that compute nodes of one shape from `first`, named `variable`."""
        variables = {first: variable}
        lines: list[str] = []
        for node in nodes:
            form_and_arguments = known.form(node)
            assert form_and_arguments is not None
            form, arguments = form_and_arguments
            values: dict[str, str] = {}
            for name, value in arguments.items():
                values[name] = self._variable(graph, value, node, variables, lines) \
                    if isinstance(value, Ref) else number(value)
            result = f"f_{node.name}"
            lines.append(f"{result} = {values['input']}")
            lines += filled(form.code, result, values.__getitem__)
            variables[Ref("node", node.name)] = result
        if nodes:
            lines.append(f"{variable} = {variables[Ref('node', nodes[-1].name)]}")
        return lines

    def _variable(self, graph: ModuleGraph, ref: Ref, node: Node, variables: dict[Ref, str],
                  lines: list[str]) -> str:
        if ref not in variables:
            operand = operand_of(graph, ref, node.form.shape, True)
            assert operand is not None
            pointer = self.name_of(ref)
            variable = f"f_{pointer}"
            index = operand.index.format(*(
                f"({self.places})" if self.places and is_channel_size(size, len(node.form.shape))
                else self.name_of(size) for size in operand.sizes))
            read = f"tl.load({pointer} + {index}, mask=inside, other=0.0)" if index else \
                f"tl.load({pointer})"
            lines.append(f"{variable} = {read}.to(tl.float32)")
            variables[ref] = variable
        return variables[ref]


def filled(code: str, variable: str, value_of: Callable[[str], str]) -> list[str]:
    """Return a form's lines with `variable` for `value` and with its arguments filled in."""
    text = re.sub(r"\{(\w+)\}|\bvalue\b",
                  lambda match: value_of(match[1]) if match[1] else variable, code)
    return [line for line in text.splitlines() if line.strip()]


def number(value: object) -> str:
    """Return a constant of an elementwise form as source text: all is computed in float32."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return repr(value)
    return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
