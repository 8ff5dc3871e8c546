"""Values in a function that launches kernels: sizes, and newly allocated tensors."""

from __future__ import annotations

import ast
import copy
import math
import re

from engine.transformations.triton.parsed_triton import ParsedTriton

_METADATA = ("shape", "dtype", "device", "stride", "numel", "size", "dim", "ndim", "element_size",
             "is_cuda", "is_contiguous")
_NEW = re.compile(r"torch\.(?:empty|zeros|ones|full|rand|randn)(?:_like)?|\w+\.new_(?:empty|zeros)")
_DENSE = ("dtype", "device", "requires_grad")
"""Keywords of a `torch.*_like` call that copies the strides of a contiguous tensor."""
_QUIET = re.compile(
    r"(?:triton|math)\.\w+|min|max|int|len|float|bool|.*\.(?:stride|numel|size|dim|is_contiguous)")


class HostValues:
    """The values of a function's names, and where the contents of its tensors are used."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._function = function
        self.single = ParsedTriton.single_values(function)
        in_loops = {id(part) for loop in ast.walk(function) for part in ast.walk(loop)
                    if isinstance(loop, ast.For | ast.While | ast.AsyncFor)}
        self._last_stores = dict[str, float]()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                line = math.inf if id(node) in in_loops else node.lineno
                self._last_stores[node.id] = max(line, self._last_stores.get(node.id, 0))
        shared = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal)
                  for name in node.names}
        self.allocated = tuple(name for name, value in self.single.items() if is_new(value)
                               and name not in shared)
        """The tensors that the function allocates, each under one name."""

    def value(self, name: str) -> ast.expr | None:
        """Return the value of a name that is assigned exactly once, else None."""
        return self.single.get(name)

    def text(self, node: ast.expr) -> str:
        """Return an argument as text; equal texts stand for equal values."""
        return ast.unparse(_Resolved(self, self.single).visit(copy.deepcopy(node)))

    def is_final(self, node: ast.expr) -> bool:
        """Return whether the names in an assigned value keep their values after its line."""
        return all(self._last_stores.get(part.id, 0) < node.lineno for part in ast.walk(node)
                   if isinstance(part, ast.Name))

    def copied(self, tensor: str, attribute: str) -> ast.expr | None:
        """Return the tensor from which an allocated one has its shape, or its strides, if known.

        `torch.empty_like` copies the strides of a dense tensor, and gives others strides of its
        own.
        """
        made = self.single[tensor]
        if not isinstance(made, ast.Call) or not ast.unparse(made.func).endswith("_like") \
                or not self.is_final(made):
            return None
        model = made.args[0]
        if attribute == "stride" and not (isinstance(model, ast.Name) and self._is_contiguous(
                model.id, made.lineno) and all(part.arg in _DENSE for part in made.keywords)):
            return None
        return model

    def _is_contiguous(self, tensor: str, line: int) -> bool:
        """Return whether a tensor is surely contiguous at a line: made so, or asserted to be."""
        last = self._last_stores.get(tensor, 0)
        for statement in self._function.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) \
                        if name == tensor and statement.lineno == last < line:
                    if ast.unparse(made.func).endswith(".contiguous"):
                        return not made.args and not made.keywords
                    if not is_new(made) or any(part.arg not in _DENSE for part in made.keywords):
                        return False
                    model = made.args[0] if ast.unparse(made.func).endswith("_like") else None
                    return model is None or (isinstance(model, ast.Name)
                                             and self._is_contiguous(model.id, statement.lineno))
                case ast.Assert(test=test) if last < statement.lineno < line:
                    parts = test.values if isinstance(test, ast.BoolOp) \
                        and isinstance(test.op, ast.And) else [test]
                    if f"{tensor}.is_contiguous()" in map(ast.unparse, parts):
                        return True
        return False

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

    def __init__(self, values: HostValues, single: dict[str, ast.expr]) -> None:
        self._values, self._single = values, single

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = node.value
        if node.attr in ("shape", "numel", "size", "stride") and isinstance(value, ast.Name) \
                and value.id in self._values.allocated:
            model = self._values.copied(value.id, node.attr)
            if model is not None:
                return self.visit_Attribute(ast.Attribute(model, node.attr, node.ctx))
        return ast.Attribute(self.visit(value), node.attr, node.ctx)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._single.get(node.id)
        if value is None or not all(map(_QUIET.fullmatch, ParsedTriton.called(value))) \
                or isinstance(value, ast.Name | ast.Lambda | ast.Tuple | ast.List) \
                or not self._values.is_final(value):
            return node
        others = {name: single for name, single in self._single.items() if name != node.id}
        resolved = _Resolved(self._values, others).visit(copy.deepcopy(value))
        assert isinstance(resolved, ast.expr)
        return resolved
