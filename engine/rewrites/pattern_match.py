"""Finds where a graph computes an expression of torch functions, such as `x / torch.norm(x)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.rewrites.module_graph import ModuleGraph, Node, Ref, SourceCode
from engine.rewrites.template_catalog import holds, spellings, values

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "torch.add", ast.Sub: "torch.sub", ast.Mult: "torch.mul", ast.Div: "torch.div",
    ast.Pow: "torch.pow", ast.MatMult: "torch.matmul"}
CASTS = ("to", "type", "float", "half", "bfloat16", "char")
CAST_TARGETS = frozenset(f"torch.Tensor.{name}" for name in CASTS)
BACKWARDS = ("torch.rsub", "torch.Tensor.__rtruediv__", "torch.Tensor.__rdiv__")
USUAL: Mapping[str, Any] = {"alpha": 1, "approximate": "none", "beta": 1, "diagonal": 0}
"""Values of arguments that an expression does not name; any others must be None or False."""


@dataclass(frozen=True, kw_only=True)
class PatternMatch:
    """The graph values that an expression's names match, and the nodes below its root."""

    bound: dict[str, Any]
    inner: tuple[Node, ...]


def match(graph: ModuleGraph, root: Node, expression: str) -> PatternMatch | None:
    """Match `root` against an expression; None if it does not match."""
    if (possible := roots(expression)) and possible.isdisjoint(spellings(root.target)):
        return None
    matcher = _Matcher(graph)
    if not matcher.value(parsed(expression), Ref("node", root.name)):
        return None
    inner = matcher.nodes - {root.name}
    return PatternMatch(bound=matcher.bound, inner=tuple(
        node for node in graph.nodes if node.name in inner))


@cache
def written(pattern: ast.expr) -> str:
    return ast.unparse(pattern)


@cache
def parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


@cache
def roots(expression: str) -> frozenset[str]:
    """Return the functions of which one computes an expression's result; none if any may."""
    pattern = parsed(expression)
    while isinstance(pattern, ast.NamedExpr):
        pattern = pattern.value
    if isinstance(pattern, ast.BinOp):
        return frozenset({OPERATORS.get(type(pattern.op), ""), *BACKWARDS})
    if not isinstance(pattern, ast.Call):
        return frozenset()
    target = called(pattern)[0]
    return CAST_TARGETS if target == "torch.Tensor.to" else frozenset({target})


@cache
def called(pattern: ast.Call) -> tuple[str, tuple[ast.expr, ...]]:
    """Return the torch function that an expression calls, and its positional arguments."""
    target = ast.unparse(pattern.func)
    if isinstance(pattern.func, ast.Attribute) and not re.fullmatch(
            r"(torch|F)(\.\w+)+", target):  # a method
        return f"torch.Tensor.{pattern.func.attr}", (pattern.func.value, *pattern.args)
    return re.sub(r"^F\.", "torch.nn.functional.", target), tuple(pattern.args)


class _Matcher:
    def __init__(self, graph: ModuleGraph) -> None:
        self.graph = graph
        self.bound: dict[str, Any] = {}
        self.nodes: set[str] = set()

    def value(self, pattern: ast.expr, value: Any) -> bool:
        """Compare a part of the expression with a tensor or a constant of the graph."""
        if isinstance(pattern, ast.Name):
            known = self.bound.setdefault(pattern.id, value)
            return type(known) is type(value) and bool(known == value)
        if isinstance(pattern, ast.Constant):
            return (type(value) is not bool and bool(pattern.value == value)) or \
                pattern.value is value
        if isinstance(pattern, ast.Subscript):
            return self._item(pattern, value)
        if isinstance(pattern, ast.NamedExpr):
            return self.value(pattern.value, value) and self.value(pattern.target, value)
        if isinstance(value, SourceCode):
            return written(pattern) == value.text
        if isinstance(pattern, ast.Tuple):
            return isinstance(value, list | tuple) and len(value) == len(pattern.elts) and all(
                map(self.value, pattern.elts, value))
        if isinstance(value, int | float):
            return holds(f"({written(pattern)}) == {value!r}",
                         values(self.graph, self.bound, ""))
        if not isinstance(value, Ref) or value.kind != "node" or value.item is not None:
            return False
        node = self.graph.node(value.name)
        if node.written is not None:
            return False
        self.nodes.add(node.name)
        if isinstance(pattern, ast.BinOp):
            return self._infix(pattern, node)
        return isinstance(pattern, ast.Call) and self._call(pattern, node)

    def _item(self, pattern: ast.Subscript, value: Any) -> bool:
        """Compare `f(x)[0]`, where a function returns several tensors."""
        if not isinstance(value, Ref) or value.kind != "node" or value.item is None or \
                written(pattern.slice) != str(value.item) or \
                not isinstance(pattern.value, ast.Call):
            return False
        self.nodes.add(value.name)
        return self._call(pattern.value, self.graph.node(value.name))

    def _infix(self, pattern: ast.BinOp, node: Node) -> bool:
        names = spellings(node.target)
        backwards = "torch.rsub" in names or "__rtruediv__" in node.target \
            or "__rdiv__" in node.target
        target = OPERATORS.get(type(pattern.op), "")
        if backwards:
            target = {"torch.sub": "torch.rsub", "torch.div": "torch.div"}.get(target, "")
        if target not in names and not (backwards and target == "torch.div"):
            return False
        left, right = node.bound.get("input"), node.bound.get(
            "exponent" if target == "torch.pow" else "other")
        if backwards:
            left, right = right, left
        if not self._usual(node, {"input", "other", "exponent"}):
            return False
        before = dict(self.bound), set(self.nodes)
        if self.value(pattern.left, left) and self.value(pattern.right, right):
            return True
        self.bound, self.nodes = before
        return target in ("torch.add", "torch.mul") and self.value(pattern.left, right) \
            and self.value(pattern.right, left)

    def _call(self, pattern: ast.Call, node: Node) -> bool:
        target, arguments = called(pattern)
        if target == "torch.Tensor.to":
            return self._cast(arguments, node)
        if target not in spellings(node.target):
            return False
        keywords = {word.arg: word.value for word in pattern.keywords}
        if not node.bound:  # a function of any number of tensors
            return not keywords and not node.kwargs and len(arguments) == len(node.args) and all(
                map(self.value, arguments, node.args))
        named: dict[Any, ast.expr] = dict(zip(node.bound, arguments, strict=False))
        named |= keywords
        return named.keys() <= node.bound.keys() and self._usual(node, set(named)) and all(
            self.value(part, node.bound[str(name)]) for name, part in named.items())

    def _cast(self, arguments: Sequence[ast.expr], node: Node) -> bool:
        """Compare `x.to(dtype)` with any of the functions that convert a tensor to a dtype."""
        source, dtype = arguments
        others = [value for value in (*node.args[1:], *node.kwargs.values())
                  if not isinstance(value, SourceCode) or not value.text.startswith("torch.")
                  or value.text.startswith("torch.device")]
        return node.target.rpartition(".")[2] in CASTS and not others and \
            self.value(source, node.args[0]) and \
            self.value(dtype, SourceCode(f"torch.{node.form.dtype}"))

    def _usual(self, node: Node, named: set[Any]) -> bool:
        """Return whether arguments that the expression does not name are as USUAL says."""
        return all(value is None or value is False or USUAL.get(name, self) == value
                   for name, value in node.bound.items()
                   if name not in named and not name.startswith("_"))
