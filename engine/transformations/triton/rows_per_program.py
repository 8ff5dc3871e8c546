"""`triton-rows-per-program`: a program that works on one short row works on several."""

from __future__ import annotations

import ast
import re

from engine.transformations.transformation import (
    DoesNotApply,
    NewKnob,
    Replacement,
    Transformation,
    Transformed,
    free_name,
    replaced,
)
from engine.transformations.triton.grid_of_launch import obstacle, total
from engine.transformations.triton.parsed_triton import KernelLaunch, ParsedTriton

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
        for kernel in parsed.kernels:
            launches = [own for own in parsed.launches if own.kernel == kernel]
            totals = [total(parsed, launch) for launch in launches]
            if launches and all(totals):
                why = obstacle(parsed, kernel, launches) or _shape_fault(parsed, kernel, launches)
                if not why:
                    return _widened(parsed, kernel, list(zip(launches, totals, strict=True)))
        raise DoesNotApply(why)


def _shape_fault(parsed: ParsedTriton, kernel: str, launches: list[KernelLaunch]) -> str:
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
            return f"{kernel} works on tiles already"
    sizes = {ast.unparse(node.args[1]) for node in parsed.calls(function, "arange")
             if len(node.args) == 2}
    given = [{keyword.arg for keyword in own.call.keywords} for own in launches]
    if len(sizes) != 1 or not all(sizes <= names for names in given):
        return f"{kernel} has no single size of a block that its launch names"
    return ""


def _widened(parsed: ParsedTriton, kernel: str,
             launches: list[tuple[KernelLaunch, str]]) -> Transformed:
    source, function, tl = parsed.source, parsed.kernels[kernel], parsed.language
    knob = NewKnob(name=free_name(source, f"{kernel.strip('_').upper()}_ELEMENTS"), value=4096,
                   choices=(1, 1024, 2048, 4096, 8192, 16384), note="elements a program, at least")
    rows, parts, inside = (free_name(source, name) for name in ("ROWS", "parts", "inside"))
    block = ast.unparse(parsed.calls(function, "arange")[0].args[1])
    program = parsed.calls(function, "program_id")[0]
    first = next(own for own in function.body if any(
        node is program for node in ast.walk(own)))
    row = f"({tl}.program_id(0) * {rows} + {tl}.arange(0, {rows})[:, None])"
    begin = parsed.at(first.lineno, 0)
    own = source[begin:parsed.span(first)[0]]
    arguments = function.args.args
    last = arguments[len(arguments) - len(function.args.defaults) - 1]
    end = (last.annotation or last)
    edits = [
        parsed.before_functions(parsed.knob_lines(knob, in_kernels=False)),
        Replacement(parsed.span(end)[1], parsed.span(end)[1],
                    f", {parts}, {rows}: {tl}.constexpr"),
        Replacement(begin, begin, f"{own}{inside} = {row} < {parts}\n"),
        Replacement(*parsed.span(program), row),
        *(Replacement(parsed.span(node)[1], parsed.span(node)[1], "[None, :]")
          for node in parsed.calls(function, "arange")),
        *(_along_row(parsed, node) for name in _REDUCTIONS
          for node in parsed.calls(function, name) if len(node.args) == 1 or not _is_two(node)),
        *_masked(parsed, function, program, inside)]
    for launch, text in launches:
        size = next(parsed.text(keyword.value) for keyword in launch.call.keywords
                    if keyword.arg == block)
        count = f"max(1, {knob.name} // ({size}))"
        edits.append(Replacement(*parsed.span(launch.grid), f"(triton.cdiv({text}, {count}),)"))
        before = source[:parsed.span(launch.call)[1] - 1].rstrip()
        edits.append(Replacement(len(before), len(before), (
            " " if before[-1] == "," else ", ") + f"{parts}={text}, {rows}={count}"))
    return Transformed(source=replaced(source, edits), knobs=(knob.name,),
                       what=f"several short rows a program in {kernel}, line {function.lineno}")


def _is_two(node: ast.Call) -> bool:
    """Return whether `max` or `min` compares two values and is no reduction."""
    return len(node.args) == 2 and not (
        isinstance(node.args[1], ast.Constant) and node.args[1].value == 0)


def _along_row(parsed: ParsedTriton, node: ast.Call) -> Replacement:
    """Return the edit that makes a reduction run along rows and keep the row dimension."""
    begin, end = parsed.span(node.args[0])[1], parsed.span(node)[1]
    others = [parsed.source[slice(*_keyword_span(parsed, keyword))] for keyword in node.keywords
              if keyword.arg not in ("axis", "keep_dims")]
    return Replacement(begin, end, "".join(
        f", {text}" for text in ("axis=1", "keep_dims=True", *others)) + ")")


def _keyword_span(parsed: ParsedTriton, keyword: ast.keyword) -> tuple[int, int]:
    begin = parsed.at(keyword.lineno, keyword.col_offset)
    return begin, parsed.span(keyword.value)[1]


def _masked(parsed: ParsedTriton, function: ast.FunctionDef, program: ast.Call,
            inside: str) -> list[Replacement]:
    """Return the edits that mask loads and stores of rows after the last one."""
    varying: set[str] = set()
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign | ast.AugAssign) and any(
                node is program or (isinstance(node, ast.Name) and node.id in varying)
                for node in ast.walk(statement.value)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            varying |= {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    edits = []
    for name, place in (("load", 1), ("store", 2)):
        for call in parsed.calls(function, name):
            if not any(node is program or (isinstance(node, ast.Name) and node.id in varying)
                       for node in ast.walk(call.args[0])):
                continue
            mask = next((own.value for own in call.keywords if own.arg == "mask"),
                        call.args[place] if len(call.args) > place else None)
            if mask is not None:
                begin, end = parsed.span(mask)
                edits += [Replacement(begin, begin, "("), Replacement(end, end, f") & {inside}")]
            else:
                at = parsed.span(call.args[place - 1])[1]
                edits.append(Replacement(at, at, f", mask={inside}"))
    return edits
