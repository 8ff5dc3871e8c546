"""`triton-persistent-grid`: as many programs as fit the card; each does the work of several.

Also: how many programs a launch has, and whether their work can be distributed differently.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from engine.transformations.transformation import (
    DoesNotApply,
    Replacement,
    Transformation,
    Transformed,
    replaced,
)
from engine.transformations.triton.parsed_triton import KernelLaunch, ParsedTriton, names, stored

_PROCESSORS = """\
def {name}():
    try:
        device = torch.cuda.current_device()
        return torch.cuda.get_device_properties(device).multi_processor_count
    except (AssertionError, RuntimeError):
        return 1  # interpreted"""


class PersistentGrid(Transformation):
    name = "triton-persistent-grid"
    aim = "as many programs as fit the card, each of which takes several parts, the next part's " \
          "loads in flight"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        if not any(isinstance(node, ast.Import) and any(
                alias.name == "torch" and alias.asname is None for alias in node.names)
                for node in ast.walk(parsed.tree)):
            raise DoesNotApply("the source does not import torch")
        why = "no launch has a plain grid of one dimension"
        for kernel, launches in kernels_with_totals(parsed):
            if not (why := obstacle(parsed, kernel, launches)):
                return _persistent(parsed, kernel, launches)
        raise DoesNotApply(why)


def _persistent(parsed: ParsedTriton, kernel: str,
                launches: list[LaunchWithTotal]) -> Transformed:
    function, upper = parsed.kernels[kernel], kernel.strip("_").upper()
    per_processor = parsed.knob(f"{upper}_PROGRAMS", 8, (1, 2, 4, 8, 16, 32),
                                "programs on a multiprocessor")
    stages = parsed.knob(f"{upper}_STAGES", 1, (1, 2, 3, 4), "parts in flight")
    processors, parts, part = map(parsed.free, ("processors", "parts", "part"))
    parsed.helpers += ["", "", _PROCESSORS.format(name=processors)]
    parsed.add_parameters(function, parts)
    parsed.edit(_looped(parsed, function, parts, part, parsed.constexpr(stages)))
    for launch, text in launches:
        parsed.put(*parsed.span(launch.grid),
                   f"(min({text}, {per_processor.name} * {processors}()),)")
        parsed.add_argument(launch.call, f"{parts}={text}")
    return parsed.transformed(f"a persistent grid for {kernel}", [function.lineno])


def _looped(parsed: ParsedTriton, function: ast.FunctionDef, parts: str, part: str,
            stages: str) -> Replacement:
    """Return the edit that puts a kernel's body into a loop over its parts.

    Statements that are the same for all parts, such as loads of weights, stay before the loop.
    """
    source, body = parsed.source, function.body
    is_documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    body = body[1:] if is_documented and len(body) > 1 else body
    begin, end = parsed.at(body[0].lineno, 0), parsed.span(body[-1])[1]
    indent = parsed.indent(body[0])
    changed = sorted({name for statement in body for name in stored(statement)
                      if name in parsed.parameters(function)})
    tl, program = parsed.language, parsed.calls(function, "program_id")[0]
    common = _common(parsed, body, program)
    inner = replaced(source, [
        Replacement(*parsed.span(program), f"{tl}.cast({part}, {tl}.int32)"),
        *(Replacement(parsed.at(each.lineno, 0), parsed.at((each.end_lineno or 0) + 1, 0), "")
          for each in common)], begin, end)
    kept = {name: parsed.free(f"{name}_first") for name in changed}
    lines = [*(source[parsed.at(each.lineno, 0):parsed.span(each)[1]] for each in common),
             *(f"{indent}{first_name} = {name}" for name, first_name in kept.items()),
             f"{indent}for {part} in {tl}.range({tl}.program_id(0), {parts}, {tl}.num_programs(0), "
             f"num_stages={stages}):",
             *(f"{indent}    {name} = {first_name}" for name, first_name in kept.items()),
             *(f"    {line}" if line.strip() else line for line in inner.split("\n"))]
    return Replacement(begin, end, "\n".join(lines))


def _common(parsed: ParsedTriton, body: list[ast.stmt], program: ast.Call) -> list[ast.Assign]:
    """Return the assignments of a body whose values are the same for every part."""
    set_names = [name for statement in body for name in stored(statement)]
    varying = {name for name in set_names if set_names.count(name) > 1}
    statements = []
    for statement in body[:-1]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) \
                and not varying.intersection(names(statement)) \
                and program not in ast.walk(statement) and not parsed.calls(statement, "store"):
            statements.append(statement)
        else:
            varying |= set(stored(statement))
    return statements


def total(parsed: ParsedTriton, launch: KernelLaunch) -> str:
    """Return the number of programs of a launch as an expression, "" if it is not known."""
    grid: ast.expr | None = launch.grid
    if isinstance(grid, ast.Name) and launch.function is not None:
        grid = parsed.single_values(launch.function).get(grid.id)
    if isinstance(grid, ast.Lambda) and len(grid.args.args) == 1:
        meta, grid = grid.args.args[0].arg, grid.body
        known = {keyword.arg: parsed.text(keyword.value) for keyword in launch.call.keywords}
        if isinstance(grid, ast.Tuple) and len(grid.elts) == 1:
            text = re.sub(rf"\b{meta}\[\s*(['\"])(\w+)\1\s*\]",
                          lambda match: f"({known[match[2]]})" if match[2] in known else match[0],
                          parsed.text(grid.elts[0]))
            return "" if re.search(rf"\b{meta}\b", text) else text
        return ""
    if isinstance(grid, ast.Tuple) and len(grid.elts) == 1:
        return parsed.text(grid.elts[0])
    return ""


LaunchWithTotal = tuple[KernelLaunch, str]
"""A launch and its number of programs."""


def kernels_with_totals(parsed: ParsedTriton) -> Iterator[tuple[str, list[LaunchWithTotal]]]:
    """Yield the launched kernels whose launches all have a known number of programs."""
    for kernel in parsed.kernels:
        launches = [(launch, total(parsed, launch)) for launch in parsed.launches
                    if launch.kernel == kernel]
        if launches and all(text for _, text in launches):
            yield kernel, launches


def obstacle(parsed: ParsedTriton, kernel: str, launches: list[LaunchWithTotal]) -> str:
    """Return why a kernel cannot loop over its programs, "" if it can."""
    function = parsed.kernels[kernel]
    arguments = function.args
    plain = len(arguments.args) - len(arguments.defaults)
    ids = parsed.calls(function, "program_id")
    if not parsed.is_plain(kernel):
        return f"{kernel} has an autotuner or heuristics"
    if len(ids) != 1 or (ids[0].keywords and ast.unparse(ids[0].keywords[0].value) != "0") \
            or (ids[0].args and ast.unparse(ids[0].args[0]) != "0"):
        return f"{kernel} does not use program_id(0) exactly once"
    if any(isinstance(node, ast.Return) for node in ast.walk(function)) \
            or parsed.calls(function, "num_programs") or "atomic_" in parsed.text(function):
        return f"{kernel} returns early, or its programs depend on each other"
    if any(name in parsed.called(function) and parsed.calls(other, "program_id")
           for name, other in parsed.kernels.items()):
        return f"{kernel} calls a function that uses program_id"
    if arguments.vararg or arguments.kwarg or any(
            len(launch.call.args) > plain or any(
                isinstance(argument, ast.Starred) for argument in launch.call.args)
            for launch, _ in launches):
        return f"a launch of {kernel} passes more positional arguments than it needs"
    if parsed.calls(function, "debug_barrier"):
        return f"{kernel} has a barrier"
    return ""
