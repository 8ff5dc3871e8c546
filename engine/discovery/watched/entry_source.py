"""Find a function in a Python source: where it is defined, how it is called, its sizes' names."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.routing.source_language import parse_python
from harness.errors import InputError
from harness.formats.text import suggest

Function = ast.FunctionDef | ast.AsyncFunctionDef
Parameters = tuple[str, ...]
APPLY = "apply"


@dataclass(frozen=True, kw_only=True)
class EntrySource:
    """A function that can be a task's entry.

    `name` and `lines` are those of the code that runs: of a class's `forward` if the entry is its
    `apply`. The caller does not pass the first `hidden` parameters (self, ctx). `sizes` are the
    names that the source gives to sizes, by (parameter, axis). `owner` is the class on whose
    objects a method is called.
    """

    entry: str
    name: str
    lines: tuple[int, ...]
    parameters: Parameters = ()
    hidden: int = 0
    owner: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[tuple[str, int], str] = field(default_factory=dict)
    parts: Mapping[str, Parameters] = field(default_factory=dict)
    """The names that the function gives to the parts of a parameter: `x, y = data`."""


def parsed(source: str, where: str) -> ast.Module:
    """Return the tree of a source. Raises InputError with the line."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise InputError(f"not Python: {error.msg}", where=f"{where}:{error.lineno}") from None


def find(source: str, entry: str, where: str) -> EntrySource:
    """Return a function of a source. Raises InputError with the line and what to name instead."""
    tree = parsed(source, where)
    holder, _, name = entry.rpartition(".")
    body = _body(tree, holder) if holder else list(statements(tree.body))
    if body is None:
        raise InputError(f"there is no class {holder!r}", where=where,
                         fix=suggest(holder, [node.name for node in statements(tree.body)
                                              if isinstance(node, ast.ClassDef)]))
    functions = [node for node in body if isinstance(node, Function) and node.name == name]
    if functions and any(_is_jit(node) for node in functions):
        callers = _launchers(tree, name)
        raise InputError(f"{name!r} is a Triton kernel, which only a launch can call",
                         where=f"{where}:{functions[0].lineno}",
                         fix=f"name the function that launches it: {', '.join(callers)}"
                         if callers else "name a Python function that launches it")
    if functions:
        marks = {mark.id for mark in functions[0].decorator_list if isinstance(mark, ast.Name)}
        hidden = 1 if holder and "staticmethod" not in marks else 0
        return _entry(entry, functions, hidden,
                      owner=holder if hidden and "classmethod" not in marks else "")
    if name == APPLY and holder:
        return _autograd_forward(entry, body, f"{where}: class {holder}")
    applied = [node.value.value for node in body if isinstance(node, ast.Assign)
               and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
               and isinstance(node.value, ast.Attribute) and node.value.attr == APPLY]
    if applied:
        owner = ast.unparse(applied[0])
        return _autograd_forward(entry, _body(tree, owner) or [], f"{where}: class {owner}")
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)
                       and not each.name.startswith("_")]
            raise InputError(f"{entry!r} is a class", where=f"{where}:{node.lineno}",
                             fix=f"name a method: {entry}.{(methods or ['__call__'])[0]}")
    raise InputError(f"there is no function {entry!r}", where=where,
                     fix=suggest(name, public_functions(source)) or "name one of "
                     + (", ".join(public_functions(source)[:8]) or "another file"))


def public_functions(source: str) -> list[str]:
    """Return the functions of a source that a task could name, those that launch kernels first.

    Names with an underscore count only where there are no others.
    """
    tree = parse_python(source)
    if tree is None:
        return []
    kernels = {node.name for node in ast.walk(tree) if isinstance(node, Function) and _is_jit(node)}
    named = [node for node in tree.body if isinstance(node, Function) and node.name not in kernels]
    functions = [node for node in named if not node.name.startswith("_")] or named
    launching = [node for node in functions if any(
        isinstance(each, ast.Name) and each.id in kernels for each in ast.walk(node))]
    return [node.name for node in [*launching, *(each for each in functions
                                                 if each not in launching)]]


def module_methods(source: str) -> list[str]:
    """Return the `forward` methods of a source's classes, as `Class.forward`."""
    tree = parse_python(source)
    return [] if tree is None else [
        f"{node.name}.forward" for node in statements(tree.body) if isinstance(node, ast.ClassDef)
        and any(isinstance(each, Function) and each.name == "forward" for each in node.body)]


def other_files(files: Sequence[str], project: Path, source: str) -> list[str]:
    """Return those of some files that are the project's, as its paths, without the source."""
    paths = (Path(os.path.realpath(file)) for file in files)
    inside = (path.relative_to(project.resolve()).as_posix() for path in paths
              if path.is_relative_to(project.resolve()))
    return sorted({*inside} - {Path(source).as_posix()})


def _autograd_forward(entry: str, body: Sequence[ast.stmt], where: str) -> EntrySource:
    """Return the `forward` of a torch.autograd.Function, which its `apply` calls."""
    functions = [node for node in body if isinstance(node, Function) and node.name == "forward"]
    if not functions:
        raise InputError("the class has no forward, so it has no apply", where=where,
                         fix="name a torch.autograd.Function")
    setup = any(isinstance(node, Function) and node.name == "setup_context" for node in body)
    return _entry(entry, functions, 0 if setup else 1)


def _entry(entry: str, functions: Sequence[Function], hidden: int, *,
           owner: str = "") -> EntrySource:
    first = functions[0]
    args = [*first.args.posonlyargs, *first.args.args]
    values = [*first.args.defaults]
    defaults = dict(zip([argument.arg for argument in args[len(args) - len(values):]], values,
                        strict=True))
    defaults |= {argument.arg: value for argument, value in zip(
        first.args.kwonlyargs, first.args.kw_defaults, strict=True) if value is not None}
    return EntrySource(
        entry=entry, name=first.name, hidden=hidden, owner=owner,
        lines=tuple(min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                    for node in functions),
        parameters=tuple(each.arg for each in [*args, *first.args.kwonlyargs]),
        defaults={name: _literal(value) for name, value in defaults.items()},
        sizes=dict(_sizes(first)), parts=_parts(first))


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return ...


def _parts(function: Function) -> dict[str, Parameters]:
    """Return the names that a function gives to the parts of its parameters, the first ones."""
    parts: dict[str, Parameters] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and isinstance(
                node.targets[0], ast.Tuple | ast.List):
            names = [each.id for each in node.targets[0].elts if isinstance(each, ast.Name)]
            if len(set(names) - {"_"}) == len(node.targets[0].elts):
                parts.setdefault(node.value.id, tuple(names))
    return parts


def _sizes(function: Function) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield the names that a function gives to sizes: `rows, cols = x.shape`, `n = x.shape[0]`."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        pairs = [(node.targets[0], node.value)]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
        for name, value in pairs:
            tensor = _shape_of(value)
            if tensor is not None and isinstance(name, ast.Tuple):
                for axis, each in enumerate(name.elts):
                    if isinstance(each, ast.Starred):
                        break
                    if isinstance(each, ast.Name) and each.id != "_":
                        yield (tensor, axis), each.id.lower()
            if isinstance(value, ast.Subscript) and isinstance(name, ast.Name):
                tensor, index = _shape_of(value.value), _literal(value.slice)
                if tensor is not None and isinstance(index, int):
                    yield (tensor, index), name.id.lower()


def _shape_of(node: ast.expr) -> str | None:
    """Return the variable of `x.shape` or `x.size()`, None for another expression."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return node.value.id if isinstance(node.value, ast.Name) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
            and node.func.attr == "size" and isinstance(node.func.value, ast.Name) \
            and not node.args:
        return node.func.value.id
    return None


def _is_jit(function: Function) -> bool:
    marks = [ast.unparse(mark) for mark in function.decorator_list]
    return any(mark.partition("(")[0].endswith("jit") for mark in marks)


def _launchers(tree: ast.Module, kernel: str) -> list[str]:
    """Return the functions that use a kernel by its name, at most six."""
    return [node.name for node in statements(tree.body) if isinstance(node, Function)
            and not _is_jit(node) and any(isinstance(each, ast.Name) and each.id == kernel
                                          for each in ast.walk(node))][:6]


def _body(tree: ast.Module, holder: str) -> list[ast.stmt] | None:
    body = list(statements(tree.body))
    for step in holder.split("."):
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == step]
        if not classes:
            return None
        body = list(statements(classes[-1].body))
    return body


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also those below `if`, `with` and `try`."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from statements(getattr(node, name, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from statements(handler.body)
