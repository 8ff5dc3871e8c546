"""Inlines consecutive calls of functions that launch one kernel each.

`x = scale(x, 2.0)`, `x = relu(x)`: each function allocates a result, launches a kernel and returns
the result. Inlined, the launches follow each other in one function and can be compared.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

from engine.transformations.transformation import Replacement, free_name, replaced
from engine.transformations.triton.host_values import is_new
from engine.transformations.triton.parsed_triton import ParsedTriton, WithValues, loaded, stored


def inlined(source: str) -> Iterator[str]:
    """Yield, for each row of consecutive calls, the source with only that row inlined."""
    parsed = ParsedTriton(source)
    wrappers = dict(_wrappers(parsed))
    for function in ast.walk(parsed.tree):
        if isinstance(function, ast.FunctionDef) and function.name not in wrappers:
            for row in _rows(parsed, function, wrappers):
                yield replaced(source, [_Row(parsed, function, wrappers).replacement(row)])


def _wrappers(parsed: ParsedTriton) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield (name, function) of straight-line functions that launch kernels and return a name."""
    launched = {launch.function for launch in parsed.launches}
    named = [*stored(parsed.tree), *(node.name for node in ast.walk(parsed.tree)
                                     if isinstance(node, ast.FunctionDef))]
    for function in parsed.tree.body:
        if function in launched and isinstance(function, ast.FunctionDef) \
                and not function.decorator_list and named.count(function.name) == 1 \
                and _is_straight(function):
            yield function.name, function


def _is_straight(function: ast.FunctionDef) -> bool:
    parameters, last = function.args, function.body[-1]
    if any((parameters.vararg, parameters.kwarg, parameters.kwonlyargs,
            parameters.posonlyargs)) or not (
            isinstance(last, ast.Return) and isinstance(last.value, ast.Name)) or not all(
            isinstance(value, ast.Constant) for value in parameters.defaults):
        return False
    for number, statement in enumerate(function.body[:-1]):
        match statement:
            case ast.Assign(targets=[ast.Name()]) | ast.Assert() | ast.Expr(value=ast.Call()):
                pass
            case ast.Expr(value=ast.Constant()):  # a docstring
                pass
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Attribute(attr="shape")):
                if not all(isinstance(target, ast.Name) for target in names):
                    return False
            case _:
                return False
        later = {name for other in function.body[number + 1:] for name in stored(other)}
        for node in ast.walk(statement):  # a lambda sees later values of its names
            if isinstance(node, ast.Lambda) and (
                    later.intersection(loaded(node)) or node.args.defaults or _arguments(node)
                    & {*stored(function), *(each.arg for each in parameters.args)}):
                return False
            if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.ListComp | ast.DictComp
                          | ast.SetComp | ast.GeneratorExp):
                return False
    return True


def _rows(parsed: ParsedTriton, function: ast.FunctionDef,
          wrappers: dict[str, ast.FunctionDef]) -> Iterator[list[ast.stmt]]:
    """Yield the rows of consecutive statements, outside loops, with at least two wrapper calls."""
    if any(isinstance(part, ast.Global | ast.Nonlocal) for part in ast.walk(function)):
        return
    for node in _outside_loops(function):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            row = list[ast.stmt]()
            for statement in [*body, None] if isinstance(body, list) else ():
                if statement is not None and _called(statement, wrappers):
                    row.append(statement)
                    continue
                names = [name for statement in row for name in _calls(statement, wrappers)]
                if len(names) > 1 and parsed.has_own_lines(row[0], row[-1]) and not any(
                        _collides(wrappers[name], function) for name in names):
                    yield row
                row = []


def _collides(wrapper: ast.FunctionDef, function: ast.FunctionDef) -> bool:
    """Return whether a name means one thing in a wrapper and another in the function."""
    wrapper_names, taken = ({*stored(each), *_arguments(each)} for each in (wrapper, function))
    inner = _arguments(wrapper) - {each.arg for each in wrapper.args.args}  # parameters of lambdas
    return bool(({*loaded(wrapper)} - wrapper_names | {wrapper.name}) & taken
                or inner & {*taken, *loaded(function)})


class _Row:
    """Writes the inlined statements of a row; each name that they set gets a new name."""

    def __init__(self, parsed: ParsedTriton, function: ast.FunctionDef,
                 wrappers: dict[str, ast.FunctionDef]) -> None:
        self.parsed, self.function, self.wrappers = parsed, function, wrappers
        self.lines = list[str]()
        self.taken = set[str]()
        self.contiguous = set[str]()
        self.current = dict[str, ast.expr]()
        """The values of the caller's names that inlined calls have set."""

    def replacement(self, row: list[ast.stmt]) -> Replacement:
        returned = ""
        for statement in row:
            value = statement.value  # type: ignore[attr-defined]
            result = self._call(value)
            if isinstance(statement, ast.Return):
                returned = f"return {ast.unparse(result)}"
            else:
                self.current[statement.targets[0].id] = result  # type: ignore[attr-defined]
        end = row[-1].end_lineno or 0
        used = {node.id for node in ast.walk(self.function) if isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load) and node.lineno > end}
        used |= {name for node in ast.walk(self.function) if node is not self.function
                 and isinstance(node, ast.Lambda | ast.FunctionDef) for name in loaded(node)}
        self.lines += [f"{name} = {ast.unparse(value)}" for name, value in self.current.items()
                       if name in used]
        self.lines += [returned] if returned else []
        indent = "\n" + " " * row[0].col_offset
        return Replacement(self.parsed.span(row[0])[0], self.parsed.span(row[-1])[1],
                           indent.join(self.lines))

    def _call(self, call: ast.Call) -> ast.expr:
        """Write the statements of a call, and return what it returns."""
        wrapper = self.wrappers[ast.unparse(call.func)]
        names = self.parsed.parameters(wrapper)
        defaults = wrapper.args.defaults
        values: dict[str, ast.expr] = dict(zip(names[len(names) - len(defaults):], defaults,
                                               strict=True))
        for name, value in [*zip(names, call.args, strict=False),
                            *((keyword.arg or "", keyword.value) for keyword in call.keywords)]:
            values[name] = self._argument(name, value)
        for statement in wrapper.body[:-1]:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                self._statement(statement, values)
        last = wrapper.body[-1]
        assert isinstance(last, ast.Return) and isinstance(last.value, ast.Name)
        return values[last.value.id]

    def _argument(self, name: str, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Call) and _is_wrapped(value, self.wrappers):
            return self._call(value)
        value = _put(value, self.current)
        return value if isinstance(value, ast.Name | ast.Constant) else self._set(name, value)

    def _set(self, name: str, value: ast.expr) -> ast.expr:
        """Write an assignment to a name that is free, and return it."""
        variable = free_name(self.parsed.source, name, self.taken)
        self.taken.add(variable)
        self.lines.append(f"{variable} = {ast.unparse(value)}")
        if _is_contiguous(value, self.contiguous):
            self.contiguous.add(variable)
        return ast.Name(variable, ast.Load())

    def _statement(self, statement: ast.stmt, values: dict[str, ast.expr]) -> None:
        if not isinstance(statement, ast.Assign):
            self.lines.append(ast.unparse(_put(statement, values)))
            return
        target, value = statement.targets[0], _put(statement.value, values)
        if isinstance(target, ast.Tuple):
            values |= {element.id: self._set(element.id, ast.Subscript(value, ast.Constant(axis)))
                       for axis, element in enumerate(target.elts) if isinstance(element, ast.Name)}
        elif isinstance(target, ast.Name):
            is_final = isinstance(value, ast.Constant) or (isinstance(value, ast.Name)
                                                           and value.id in self.taken)
            match value:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=tensor), attr="contiguous"),
                              args=[], keywords=[]) if tensor in self.contiguous:
                    values[target.id] = ast.Name(tensor, ast.Load())
                case _:
                    values[target.id] = value if is_final else self._set(target.id, value)


def _put(tree: Any, values: dict[str, ast.expr]) -> Any:
    """Return a copy of a tree with values in the place of names."""
    return ast.fix_missing_locations(WithValues(values).visit(copy.deepcopy(tree)))


def _is_contiguous(value: ast.expr, known: set[str]) -> bool:
    if not isinstance(value, ast.Call) or any(
            keyword.arg in (None, "memory_format") for keyword in value.keywords):
        return False
    name = ast.unparse(value.func)
    if name.endswith("_like"):
        return is_new(value) and ast.unparse(value.args[0]) in known
    return is_new(value) or (name.endswith(".contiguous") and not value.args)


def _called(statement: ast.stmt, wrappers: dict[str, ast.FunctionDef]) -> bool:
    """Return whether a statement sets a name to a wrapper's result, or returns it."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=value) | ast.Return(value=value):
            return value is not None and _fits(value, wrappers)
    return False


def _fits(call: ast.expr, wrappers: dict[str, ast.FunctionDef]) -> bool:
    """Return whether an expression calls a wrapper, and each argument that does so fits too."""
    if not isinstance(call, ast.Call) or not _is_wrapped(call, wrappers) or any(
            isinstance(node, ast.NamedExpr | ast.Await | ast.Yield) for node in ast.walk(call)):
        return False
    parameters = wrappers[ast.unparse(call.func)].args
    names = [parameter.arg for parameter in parameters.args]
    keywords = [keyword.arg for keyword in call.keywords]
    bound = [*names[:len(call.args)], *keywords]
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return len(call.args) <= len(names) and set(keywords) <= set(names) \
        and len(bound) == len(set(bound)) \
        and set(names[:len(names) - len(parameters.defaults)]) <= set(bound) \
        and all(_fits(value, wrappers) if _is_wrapped(value, wrappers) else not isinstance(
            value, ast.Starred) and not any(_is_wrapped(part, wrappers) for part in ast.walk(value))
            for value in values)


def _is_wrapped(node: ast.AST, wrappers: dict[str, ast.FunctionDef]) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in wrappers


def _calls(statement: ast.stmt, wrappers: dict[str, ast.FunctionDef]) -> list[str]:
    return [ast.unparse(node.func) for node in ast.walk(statement)  # type: ignore[attr-defined]
            if _is_wrapped(node, wrappers)]


def _outside_loops(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.For | ast.While | ast.AsyncFor | ast.FunctionDef | ast.ClassDef
                          | ast.Lambda | ast.AsyncFunctionDef):
            yield from _outside_loops(child)


def _arguments(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    return {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
