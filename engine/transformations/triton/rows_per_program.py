"""`triton-rows-per-program`: each program works on several short rows instead of one."""

from __future__ import annotations

import ast
import re

from engine.transformations.transformation import (
    DoesNotApply,
    Replacement,
    Transformation,
    Transformed,
)
from engine.transformations.triton.parsed_triton import ParsedTriton, names, target_of
from engine.transformations.triton.persistent_grid import (
    LaunchWithTotal,
    kernels_with_totals,
    obstacle,
)

_REDUCTIONS = ("sum", "max", "min")
_ELEMENTWISE = ("program_id", "arange", "load", "store", "cast", "where", "exp", "exp2", "log",
                "log2", "sqrt", "rsqrt", "sigmoid", "abs", "maximum", "minimum", "math.rsqrt",
                "math.exp", "math.log", "math.sqrt", "fma", "erf", "cdiv", *_REDUCTIONS)


class RowsPerProgram(Transformation):
    name = "triton-rows-per-program"
    aim = "several short rows for each program, so that more loads are in flight"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        why = "no launch has a plain grid of one dimension"
        for kernel, launches in kernels_with_totals(parsed):
            why = obstacle(parsed, kernel, launches) or _shape_fault(parsed, kernel, launches)
            if not why:
                return _widened(parsed, kernel, launches)
        raise DoesNotApply(why)


def _shape_fault(parsed: ParsedTriton, kernel: str, launches: list[LaunchWithTotal]) -> str:
    """Return why a kernel's values cannot get one more dimension, "" if they can."""
    function, tl = parsed.kernels[kernel], parsed.language
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.While):
            return f"{kernel} has a loop"
        if isinstance(node, ast.Call) and re.fullmatch(rf"{tl}(?:\.\w+)+", ast.unparse(node.func)):
            name = ast.unparse(node.func).removeprefix(f"{tl}.")
            if name not in _ELEMENTWISE:
                return f"{kernel} calls {tl}.{name}, whose shape is not known"
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) \
                and "None" in ast.unparse(node.slice):
            return f"{kernel} already works on tiles"
    sizes = {ast.unparse(node.args[1]) for node in parsed.calls(function, "arange")
             if len(node.args) == 2}
    passed = [{keyword.arg for keyword in launch.call.keywords} for launch, _ in launches]
    if len(sizes) != 1 or not all(sizes <= named for named in passed):
        return f"{kernel} has no single block size that its launches pass by name"
    return ""


def _widened(parsed: ParsedTriton, kernel: str,
             launches: list[LaunchWithTotal]) -> Transformed:
    function, tl = parsed.kernels[kernel], parsed.language
    knob = parsed.knob(f"{kernel.strip('_').upper()}_ELEMENTS", 4096,
                       (1, 1024, 2048, 4096, 8192, 16384), "elements a program, at least")
    rows, parts, inside = map(parsed.free, ("ROWS", "parts", "inside"))
    block = ast.unparse(parsed.calls(function, "arange")[0].args[1])
    program = parsed.calls(function, "program_id")[0]
    first = next(statement for statement in function.body if any(
        node is program for node in ast.walk(statement)))
    row = f"({tl}.program_id(0) * {rows} + {tl}.arange(0, {rows})[:, None])"
    parsed.add_parameters(function, f"{parts}, {rows}: {tl}.constexpr")
    parsed.insert(parsed.at(first.lineno, 0),
                  f"{parsed.indent(first)}{inside} = {row} < {parts}\n")
    parsed.edit(
        Replacement(*parsed.span(program), row),
        *(Replacement(parsed.span(node)[1], parsed.span(node)[1], "[None, :]")
          for node in parsed.calls(function, "arange")),
        *(_along_row(parsed, node) for name in _REDUCTIONS
          for node in parsed.calls(function, name)
          if len(node.args) != 2 or ast.unparse(node.args[1]) == "0"),  # no `max(a, b)`
        *_masked(parsed, function, program, inside))
    for launch, text in launches:
        size = next(parsed.text(keyword.value) for keyword in launch.call.keywords
                    if keyword.arg == block)
        count = f"max(1, {knob.name} // ({size}))"
        parsed.put(*parsed.span(launch.grid), f"(-(-({text}) // {count}),)")
        parsed.add_argument(launch.call, f"{parts}={text}, {rows}={count}")
    return parsed.transformed(f"several short rows a program in {kernel}", [function.lineno])


def _along_row(parsed: ParsedTriton, node: ast.Call) -> Replacement:
    """Return the edit that makes a reduction run along rows and keep the row dimension."""
    begin, end = parsed.span(node.args[0])[1], parsed.span(node)[1]
    others = [parsed.text(keyword) for keyword in node.keywords
              if keyword.arg not in ("axis", "keep_dims")]
    return Replacement(begin, end, "".join(
        f", {text}" for text in ("axis=1", "keep_dims=True", *others)) + ")")


def _masked(parsed: ParsedTriton, function: ast.FunctionDef, program: ast.Call,
            inside: str) -> list[Replacement]:
    """Return the edits that mask loads and stores of rows after the last one."""
    varying: set[str] = set()
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign | ast.AugAssign) and any(
                node is program or (isinstance(node, ast.Name) and node.id in varying)
                for node in ast.walk(statement.value)):
            varying.update(names(target_of(statement)))
    edits = []
    for name, place in (("load", 1), ("store", 2)):
        for call in parsed.calls(function, name):
            if not any(node is program or (isinstance(node, ast.Name) and node.id in varying)
                       for node in ast.walk(call.args[0])):
                continue
            mask = parsed.argument(call, "mask", place)
            if mask is not None:
                begin, end = parsed.span(mask)
                edits += [Replacement(begin, begin, "("), Replacement(end, end, f") & {inside}")]
            else:
                at = parsed.span(call.args[place - 1])[1]
                edits.append(Replacement(at, at, f", mask={inside}"))
    return edits
