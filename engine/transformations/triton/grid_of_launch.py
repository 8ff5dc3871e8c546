"""How many programs a launch has, and whether their work can be distributed differently."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from engine.transformations.triton.parsed_triton import KernelLaunch, ParsedTriton


def total(parsed: ParsedTriton, launch: KernelLaunch) -> str:
    """Return the number of programs of a launch as an expression, "" if it is not known."""
    grid: ast.expr | None = launch.grid
    if isinstance(grid, ast.Name) and launch.function is not None:
        values = [node.value for node in ast.walk(launch.function) if isinstance(node, ast.Assign)
                  and [ast.unparse(target) for target in node.targets] == [grid.id]]
        grid = values[0] if len(values) == 1 else None
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
    called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    if any(name in called and parsed.calls(other, "program_id")
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
