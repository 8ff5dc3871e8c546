"""`triton.autotune` lists in a source: what configs they offer, and pinning one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import InputError

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True)
class ConfigList:
    """A `configs=[triton.Config(...), ...]`: its knob's name, its line, the configs' texts."""

    knob: str
    line: int
    texts: tuple[str, ...]


def lists(source: str, most: int) -> list[ConfigList]:
    """Return the lists that are written out, of different configs, `most` at most.

    One knob each, `<function>.config`. Raises InputError for what is no Python.
    """
    found = []
    for function, configs in _lists(source):
        texts = tuple(_text(item) for item in configs.elts if isinstance(item, ast.Call))
        if len(texts) != len(configs.elts):
            continue  # made by code: what the choices are is not written here
        if texts and len(set(texts)) == len(texts) and len(texts) <= most:
            found.append(ConfigList(f"{function}.config", configs.lineno, texts))
    return found


def pinned(source: str, knob: str, text: str) -> str:
    """Return the source with one config left in a knob's list, which is what a keep leaves."""
    for function, configs in _lists(source):
        if f"{function}.config" == knob:
            return _replace(source, configs, f"[{text}]")
    raise InputError(f"no autotune list for {knob!r}")


def lines_of(source: str) -> list[str]:
    """Split as Python and C do, ends kept: a form feed or U+2028 ends no line."""
    return _LINE.findall(source)


def _lists(source: str) -> Iterator[tuple[str, ast.List]]:
    """Yield the lists with the names of the functions that they are above."""
    for function in ast.walk(_parsed(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and _text(decorator.func).endswith("autotune"):
                values = [k.value for k in decorator.keywords if k.arg == "configs"]
                values += decorator.args[:1]
                yield from ((function.name, v) for v in values if isinstance(v, ast.List))


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        raise InputError("an expression is nested too deeply",
                         where=f"line {node.lineno}") from None


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise InputError(f"not Python: {error.msg}", where=f"line {error.lineno}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"not Python: {error or 'nested too deeply'}") from None


def _replace(source: str, node: ast.expr, text: str) -> str:
    lines = lines_of(source)
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset:].decode()
    return "".join(lines[:first]) + head + text + tail + "".join(lines[last + 1:])
