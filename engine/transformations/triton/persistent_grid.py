"""`triton-persistent-grid`: as many programs as fit the card, each of which takes several parts."""

from __future__ import annotations

import ast

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
from engine.transformations.triton.parsed_triton import KernelLaunch, ParsedTriton, constexpr

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
        for kernel in parsed.kernels:
            launches = [own for own in parsed.launches if own.kernel == kernel]
            totals = [total(parsed, launch) for launch in launches]
            if launches and all(totals) and not (why := obstacle(parsed, kernel, launches)):
                return _persistent(parsed, kernel, list(zip(launches, map(str, totals),
                                                            strict=True)))
        raise DoesNotApply(why)


def _persistent(parsed: ParsedTriton, kernel: str,
                launches: list[tuple[KernelLaunch, str]]) -> Transformed:
    source, function = parsed.source, parsed.kernels[kernel]
    upper = kernel.strip("_").upper()
    each = NewKnob(name=free_name(source, f"{upper}_PROGRAMS"), value=8,
                   choices=(1, 2, 4, 8, 16, 32), note="programs on a multiprocessor")
    stages = NewKnob(name=free_name(source, f"{upper}_STAGES"), value=1, choices=(1, 2, 3, 4),
                     note="parts in flight")
    processors, parts, part = (free_name(source, name) for name in (
        "processors", "parts", "part"))
    lines = [*parsed.knob_lines(each, in_kernels=False),
             *parsed.knob_lines(stages, in_kernels=True),
             "", "", _PROCESSORS.format(name=processors)]
    edits = [parsed.before_functions(lines), _parameter(parsed, function, parts),
             *_looped(parsed, function, parts, part, constexpr(stages))]
    for launch, text in launches:
        begin, end = parsed.span(launch.grid)
        edits.append(Replacement(begin, end,
                                 f"(min({text}, {each.name} * {processors}()),)"))
        before = source[:parsed.span(launch.call)[1] - 1].rstrip()
        edits.append(Replacement(len(before), len(before), (
            " " if before[-1] == "," else ", ") + f"{parts}={text}"))
    return Transformed(source=replaced(source, edits), knobs=(each.name, stages.name),
                       what=f"a persistent grid for {kernel}, line {function.lineno}")


def _parameter(parsed: ParsedTriton, function: ast.FunctionDef, name: str) -> Replacement:
    """Return the edit that adds a parameter after those without defaults."""
    arguments = function.args.args
    last = arguments[len(arguments) - len(function.args.defaults) - 1]
    at = parsed.span(last)[1]
    return Replacement(at, at, f", {name}")


def _looped(parsed: ParsedTriton, function: ast.FunctionDef, parts: str, part: str,
            stages: str) -> list[Replacement]:
    """Return the edits that put a kernel's body into a loop over its parts.

    Statements that are the same for all parts, such as loads of weights, stay before the loop.
    """
    source, body = parsed.source, function.body
    is_documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    body = body[1:] if is_documented and len(body) > 1 else body
    begin, end = parsed.at(body[0].lineno, 0), parsed.span(body[-1])[1]
    own = source[begin:parsed.span(body[0])[0]]
    parameters = {argument.arg for argument in function.args.args}
    changed = sorted({name for statement in body for name in _stored(statement)
                      if name in parameters})
    tl, program = parsed.language, parsed.calls(function, "program_id")[0]
    common = _common(parsed, body, program)
    inner = replaced(source, [
        Replacement(*parsed.span(program), f"{tl}.cast({part}, {tl}.int32)"),
        *(Replacement(parsed.at(own.lineno, 0), parsed.at((own.end_lineno or 0) + 1, 0), "")
          for own in common)], begin, end)
    kept = {name: free_name(source, f"{name}_first") for name in changed}
    lines = [*(source[parsed.at(own.lineno, 0):parsed.span(own)[1]] for own in common),
             *(f"{own}{first_name} = {name}" for name, first_name in kept.items()),
             f"{own}for {part} in {tl}.range({tl}.program_id(0), {parts}, {tl}.num_programs(0), "
             f"num_stages={stages}):",
             *(f"{own}    {name} = {first_name}" for name, first_name in kept.items()),
             *(f"    {line}" if line.strip() else line for line in inner.split("\n"))]
    return [Replacement(begin, end, "\n".join(lines))]


def _common(parsed: ParsedTriton, body: list[ast.stmt], program: ast.Call) -> list[ast.Assign]:
    """Return the assignments at the top of a body that do not depend on the program's part."""
    stored = [name for statement in body for name in _stored(statement)]
    varying = {name for name in stored if stored.count(name) > 1}
    found = []
    for statement in body[:-1]:
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) \
                and not names & varying and program not in ast.walk(statement) \
                and not parsed.calls(statement, "store"):
            found.append(statement)
        else:
            varying |= set(_stored(statement))
    return found


def _stored(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
