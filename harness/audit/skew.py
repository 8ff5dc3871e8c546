"""Finds grouped operations that assume groups of equal, bounded or divisible size."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from harness.audit.c.source import CSource
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import AuditRule
from harness.audit.python.names import Module
from harness.audit.python.source_tree import parameters
from harness.tasks.target import Target

_ASSERTS_MULTIPLES = "asserts that group sizes are multiples of a number"
_GROUPED = re.compile(r"moe|grouped|group_?gemm|expert|ragged|jagged|segment", re.IGNORECASE)
_SIZES = re.compile(r"(?:group|expert|m|seg\w*)_?(?:sizes?|splits?|offs?|offsets?|counts?|lens?|"
                    r"lengths?)$|tokens_per_expert|cu_?seqlens", re.IGNORECASE)
_ARGUMENT = re.compile(r"expert|group_(?:size|off|split|count|id)|tokens_per_expert|m_sizes|"
                       r"m_splits|cu_?seqlens", re.IGNORECASE)
_PER_GROUP = re.compile(r"(?:per|each)_?(?:group|expert|segment)|^(?:max|equal)_?(?:group|expert)_?"
                        r"(?:size|rows|tokens|m)$|capacity", re.IGNORECASE)
_COUNT = re.compile(r"^(?:n|num|number)_?(?:of_)?(?:groups?|experts?|segments?)$|^(?:E|G|groups|"
                    r"experts)$", re.IGNORECASE)


def is_grouped(target: Target) -> bool:
    """Return whether a task works on groups whose sizes are run-time data."""
    return bool(_GROUPED.search(f"{target.op} {target.entry} {target.description}")
                or any(_ARGUMENT.search(arg.name) for arg in target.args))


def of_python(module: Module) -> Iterator[Sighting]:
    """Yield what fixes a group's size before the data of the call is known."""
    for node in module.nodes:
        if isinstance(node, ast.arg) and node.annotation is not None \
                and _PER_GROUP.search(node.arg) \
                and any(n.endswith("constexpr") for n in module.dotted(node.annotation)):
            yield module.see(node, _over_fit(f"{node.arg} is a constant of the kernel"))
        elif isinstance(node, ast.Assert | ast.If) and _has_modulo(node.test) \
                and any(_is_size(word) for word in _words(node.test)):
            if isinstance(node, ast.Assert):
                yield module.see(node, _over_fit(_ASSERTS_MULTIPLES))
            elif any(isinstance(n, ast.Raise) for n in node.body):
                yield module.see(
                    node, _over_fit("raises unless group sizes are multiples of a number"))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) \
                and any(_COUNT.match(word) for word in _words(node.right)) \
                and not _in_grid(module, node):
            yield module.see(node, _over_fit("divides the rows evenly"))


def of_c(source: CSource) -> Iterator[Sighting]:
    """Yield what fixes a group's size in a C or CUDA source: constants and asserts."""
    tokens = source.tokens
    for index, token in enumerate(tokens):
        if token.kind == "name" and _PER_GROUP.search(token.text) and index \
                and tokens[index - 1].text in ("define", "int", "constexpr", "unsigned", "size_t") \
                and any(t.text in ("define", "constexpr", "template", "const")
                        for t in tokens[max(0, index - 5):index]):
            yield source.see(token, _over_fit(f"{token.text} is a constant of the kernel"))
        elif token.kind == "name" and token.text in ("assert", "TORCH_CHECK") \
                and source.follows(index, "("):
            inside = tokens[index + 1: source.matching.get(index + 1, index + 1)]
            if any(t.text == "%" for t in inside) and any(
                    t.kind == "name" and _is_size(t.text) for t in inside):
                yield source.see(token, _over_fit(_ASSERTS_MULTIPLES))


def _over_fit(why: str) -> AuditRule:
    return AuditRule("over-fit", "flag", why)


def _is_size(word: str) -> bool:
    return bool(_SIZES.search(word) or _PER_GROUP.search(word))


def _has_modulo(node: ast.AST) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(node))


def _words(node: ast.AST) -> list[str]:
    return [n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node)
            if isinstance(n, ast.Name | ast.Attribute)]


def _in_grid(module: Module, node: ast.AST) -> bool:
    """Return whether a division computes the group of a program from `program_id`."""
    function = next(module.enclosing(node), None)
    return function is not None and any(
        isinstance(n, ast.Attribute) and n.attr == "program_id" for n in ast.walk(node)) \
        and bool(parameters(function))
