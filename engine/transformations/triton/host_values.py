"""Values in a function that launches kernels: sizes, and newly allocated tensors."""

from __future__ import annotations

import ast
import copy
import re

from engine.transformations.triton.parsed_triton import ParsedTriton

_METADATA = ("shape", "dtype", "device", "stride", "numel", "size", "dim", "ndim", "element_size",
             "is_cuda", "is_contiguous")
_NEW = re.compile(r"torch\.(?:empty|zeros|ones|full|rand|randn)(?:_like)?|\w+\.new_(?:empty|zeros)")
_QUIET = re.compile(
    r"(?:triton|math)\.\w+|min|max|int|len|float|bool|.*\.(?:stride|numel|size|dim|is_contiguous)")


class HostValues:
    """The values of a function's names, and where the contents of its tensors are used."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._function = function
        self._single = ParsedTriton.single_values(function)
        shared = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal)
                  for name in node.names}
        self.allocated = tuple(name for name, value in self._single.items() if is_new(value)
                               and name not in shared)
        """The tensors that the function allocates, each under one name."""

    def value(self, name: str) -> ast.expr | None:
        """Return the value of a name that is assigned exactly once, else None."""
        return self._single.get(name)

    def text(self, node: ast.expr) -> str:
        """Return an argument as text; equal texts stand for equal values."""
        whole = _Resolved(self._single, set(self.allocated)).visit(copy.deepcopy(node))
        return ast.unparse(whole)

    def uses(self, tensor: str) -> list[ast.Name]:
        """Return the places where the contents of a tensor may be used."""
        quiet = {id(node.value) for node in ast.walk(self._function)
                 if isinstance(node, ast.Attribute) and node.attr in _METADATA} | {
            id(node.args[0]) for node in ast.walk(self._function) if isinstance(node, ast.Call)
            and node.args and ast.unparse(node.func).endswith("_like")}
        return [node for node in ast.walk(self._function) if isinstance(node, ast.Name)
                and node.id == tensor and isinstance(node.ctx, ast.Load) and id(node) not in quiet]


def is_new(value: ast.expr) -> bool:
    """Return whether a value is a new tensor that shares memory with no other."""
    return isinstance(value, ast.Call) and bool(_NEW.fullmatch(ast.unparse(value.func))) \
        and not any(keyword.arg in (None, "out") for keyword in value.keywords)


def is_quiet(statement: ast.stmt) -> bool:
    """Return whether a statement only computes or asserts sizes, or makes a tensor."""
    match statement:
        case ast.Assert(test=test, msg=message):
            return is_quiet_value(test) and (message is None or is_quiet_value(message))
        case ast.Assign(targets=[ast.Name()], value=ast.Call(
                func=ast.Attribute(value=ast.Name(), attr="contiguous"), args=[], keywords=[])):
            return True  # `HostValues.uses` counts a copy of a written tensor as a use
    return isinstance(statement, ast.Assign) and is_quiet_value(statement.value) and all(
        isinstance(target, ast.Name) for target in statement.targets)


def is_quiet_value(value: ast.expr) -> bool:
    """Return whether a value's calls only compute sizes or allocate tensors."""
    return all(is_new(node) or _QUIET.fullmatch(ast.unparse(node.func)) for node in ast.walk(value)
               if isinstance(node, ast.Call)) and not any(
        isinstance(node, ast.Await | ast.NamedExpr | ast.Yield) for node in ast.walk(value))


class _Resolved(ast.NodeTransformer):
    """Replaces names of sizes by their values, and sizes of `empty_like(x)` by those of x."""

    def __init__(self, single: dict[str, ast.expr], allocated: set[str]) -> None:
        self._single, self._allocated = single, allocated

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = node.value
        if node.attr in ("shape", "numel", "size") and isinstance(value, ast.Name) \
                and value.id in self._allocated:
            made = self._single[value.id]
            if isinstance(made, ast.Call) and ast.unparse(made.func).endswith("_like"):
                return self.visit_Attribute(ast.Attribute(made.args[0], node.attr, node.ctx))
        return ast.Attribute(self.visit(value), node.attr, node.ctx)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._single.get(node.id)
        if value is None or not all(map(_QUIET.fullmatch, ParsedTriton.called(value))) \
                or isinstance(value, ast.Name | ast.Lambda | ast.Tuple | ast.List):
            return node
        others = {name: single for name, single in self._single.items() if name != node.id}
        resolved = _Resolved(others, self._allocated).visit(copy.deepcopy(value))
        assert isinstance(resolved, ast.expr)
        return resolved
