"""The files that `kopt new` writes for a definition: reference, baseline, adapter, bench JSON."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec

from engine.discovery.definition.bench_schema import BenchTrace, Definition, Solution, Workload
from engine.routing.source_language import top_level
from harness.errors import InputError

REFERENCE = "kopt_reference"
ADAPTER = "call"
DEFINITION, WORKLOADS, SOLUTION = "definition.json", "workloads.jsonl", "solution.json"
RESULT = '''
    if isinstance(value, dict):
        value = [value[name] for name in {names!r}]
    return tuple(value) if isinstance(value, (list, tuple)) else value
'''


@dataclass(frozen=True, kw_only=True)
class BaselineKernel:
    """The source with the entry point, and all files of the kernel by path in the project."""

    path: str
    entry: str
    text: str
    why: str
    files: Mapping[str, str] = field(default_factory=dict)


def baseline(definition: Definition, solution: Solution | None) -> BaselineKernel:
    """Return the solution as the baseline, or without one the definition's reference."""
    folder = f"solutions/{definition.name}"
    if solution is None:
        path = f"{folder}/main.py"
        return BaselineKernel(path=path, entry="run", text=definition.reference,
                              why="the definition's reference (--solution FILE names another)",
                              files={path: definition.reference})
    if solution.definition != definition.name:
        raise InputError(f"the solution {solution.name} is for the definition "
                         f"{solution.definition}", where=definition.name)
    file, _, entry = solution.spec.entry_point.partition("::")
    texts = {each.path: each.content for each in solution.sources}
    for path in texts:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise InputError(f"the source {path!r} lies outside the solution", where=solution.name)
    if file not in texts or not entry:
        raise InputError(f"the entry point {solution.spec.entry_point!r} is not FILE::FUNCTION of "
                         "its sources", where=solution.name)
    return BaselineKernel(path=f"{folder}/{file}", entry=entry, text=texts[file],
                          why=f"the solution {solution.name}",
                          files={f"{folder}/{path}": text for path, text in texts.items()})


def reference(definition: Definition) -> str:
    """Return the definition's reference with a function that takes the inputs by name."""
    result = RESULT.format(names=list(definition.outputs))
    return f'''{definition.reference.rstrip()}


def {REFERENCE}(**given):
    """Call run with the inputs that it takes, and return the outputs in order."""
    import inspect

    names = inspect.signature(run).parameters
    value = run(**{{name: each for name, each in given.items() if name in names}}){result}'''


def adapter(definition: Definition, text: str, entry: str) -> str:
    """Return an adapter if a kernel returns a dict or list, or takes only some inputs; else ""."""
    function = _function(text, entry)
    count = parameter_count(text, entry)
    is_plain = function is None or not any(
        isinstance(node, ast.Return) and isinstance(node.value, ast.Dict | ast.List)
        for node in ast.walk(function))
    if is_plain and (count is None or count == len(definition.inputs)):
        return ""
    names = list(definition.inputs)
    passed = names if function is None or count == len(names) else [
        arg.arg for arg in (*function.args.posonlyargs, *function.args.args) if arg.arg in names]
    result = RESULT.format(names=list(definition.outputs))
    return f'''"""Calls {entry} and returns its outputs in the order of the definition."""


def {ADAPTER}(module, {", ".join(names)}):
    value = module.{entry}({", ".join(passed)}){result}'''


def parameter_count(text: str, entry: str) -> int | None:
    """Return how many positional parameters a function has; None if that is not known."""
    function = _function(text, entry)
    if function is None or function.args.vararg is not None:
        return None
    return len(function.args.posonlyargs) + len(function.args.args)


def bench_documents(folder: str, definition: Definition, workloads: Sequence[Workload],
                    solution: Solution | None) -> dict[str, bytes]:
    """Return flashinfer-bench's JSON documents by path, for an export; one workload per class."""
    lines = [msgspec.json.encode(BenchTrace(definition=definition.name, workload=each))
             for each in workloads]
    documents = {f"{folder}/{WORKLOADS}": b"\n".join([*lines, b""]),
                 f"{folder}/{DEFINITION}": msgspec.json.format(
                     msgspec.json.encode(definition), indent=2) + b"\n"}
    if solution is not None:
        documents[f"{folder}/{SOLUTION}"] = msgspec.json.format(
            msgspec.json.encode(solution), indent=2) + b"\n"
    return documents


def _function(text: str, entry: str) -> ast.FunctionDef | None:
    return next((node for node in top_level(text) if isinstance(node, ast.FunctionDef)
                 and node.name == entry), None)
