"""Hides the parts of a Python source that its entry does not need.

A change of these would not be measured.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

HIDDEN = "#hidden by kopt:"
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def hidden_lines(source: str, entry: str) -> frozenset[int]:
    """Return the lines of functions and classes that `entry` does not reach by names.

    Lines count from 1. None are hidden if the source has no such entry or is not Python.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    named: dict[str, list[ast.stmt]] = {}
    needed = {entry.partition(".")[0]} - {""}
    for node in body:
        names = list(_defined(node))
        for name in names:
            named.setdefault(name, []).append(node)
        if not names:  # it runs whenever the file is imported
            needed |= _read(node)
    if not needed & set(named) or entry.partition(".")[0] not in named:
        return frozenset()
    reached: set[str] = set()
    while rest := needed & set(named) - reached:
        reached |= rest
        needed |= {name for each in rest for node in named[each] for name in _read(node)}
    return frozenset(line for name, nodes in named.items() if name not in reached
                     for node in nodes if isinstance(node, _DEFINITIONS)
                     for line in range(_first_line(node), (node.end_lineno or 0) + 1))


def shown(source: str, entry: str) -> str:
    """Return the source with hidden lines as comments; the numbers of its lines stay."""
    hidden = hidden_lines(source, entry)
    lines = source.split("\n")
    return "\n".join(HIDDEN + line if number in hidden else line
                     for number, line in enumerate(lines, 1)) if hidden else source


def restored(changed: str) -> str:
    """Return a changed form of a shown source with its hidden lines."""
    return "\n".join(line.removeprefix(HIDDEN) for line in changed.split("\n"))


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (each.id for target in node.targets for each in ast.walk(target)
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))


def _read(node: ast.stmt) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
