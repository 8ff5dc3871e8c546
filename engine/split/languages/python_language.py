"""Python, with or without Triton, as a language whose sources can be split."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from engine.split.languages import c_dispatch, python_source
from engine.split.languages.c_dispatch import DispatchBlock
from engine.split.languages.c_entries import EntryFunction
from engine.split.languages.c_source import Item
from engine.split.languages.conditions import Condition

_BLOCK = re.compile(r"# kopt split: (?P<entry>\w+) (?P<table>[^\n]*\n(?:#[^\n]*\n)+)(?P<code>.*?)"
                    r"# kopt split: end\n?", re.DOTALL)


class Python:
    """A module: knobs are its constants, an entry is a plain function that nothing in it calls.

    Dispatched is on expressions over an entry's arguments, such as `x.shape[1]`.
    """

    gap = "\n\n"

    def __init__(self, knobs: str = "python") -> None:
        self.knobs = knobs

    def items(self, source: str) -> tuple[Item, ...]:
        return python_source.items(source)

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        return python_source.renamed(text, name_of)

    def names(self, source: str) -> frozenset[str]:
        return python_source.names(source)

    def entry_of(self, item: Item) -> EntryFunction | None:
        """Return a function as one that can be called with its own arguments."""
        node = python_source.function_of(item)
        if node is None or _takes_defaults_of_the_module(node.args):
            return None
        args = node.args
        plain = [one.arg for one in (*args.posonlyargs, *args.args)]
        own = tuple(plain + [one.arg for one in args.kwonlyargs])
        called = [*plain, *([f"*{args.vararg.arg}"] if args.vararg else []),
                  *(f"{one.arg}={one.arg}" for one in args.kwonlyargs),
                  *([f"**{args.kwarg.arg}"] if args.kwarg else [])]
        return EntryFunction(name=item.function, item=item, parameters=tuple(called), numbers=own)

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        return all(_root(column) in entry.numbers for column in columns)

    def read(self, source: str) -> tuple[str, tuple[DispatchBlock, ...]]:
        parts, blocks, at, length = [], [], 0, 0
        for found in _BLOCK.finditer(source):
            parts.append(source[at:found.start()])
            length += found.start() - at
            blocks.append(_block(found, length))
            at = found.end()
        return "".join([*parts, source[at:]]), tuple(blocks)

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        entry = self.entry_of(kernel)
        assert entry is not None  # it was dispatched, or is about to be
        called = ", ".join(entry.parameters)
        lines = [*(f"# {line}".replace("#    ", "#   ") for line in c_dispatch.table(block)),
                 f"def {block.entry}({kernel.params}):"]
        for one in block.branches:
            lines += [f"    if {_code(str(one.condition))}:",
                      f"        return {one.kernel}({called})"]
        return "\n".join(["", *lines, f"    return {block.default}({called})",
                          "# kopt split: end"]) + "\n"

    def comment(self, text: str) -> str:
        return f"# {text}\n"

    def is_header(self, item: Item) -> bool:
        return item.text.startswith(("import ", "from "))


def _takes_defaults_of_the_module(args: ast.arguments) -> bool:
    """Tell whether a default is the module's: a dispatcher would hand the old kernel's on."""
    given = [*args.defaults, *filter(None, args.kw_defaults)]
    return any(isinstance(node, ast.Name) for one in given for node in ast.walk(one))


def _block(found: re.Match[str], at: int) -> DispatchBlock:
    code = re.sub(r"\s+", " ", found["code"])

    def goes(kernel: str, condition: Condition | None) -> bool:
        before = "" if condition is None else f"if {_code(str(condition))}:"
        return f"{before} return {kernel}(" in code

    table = re.sub(r"^#", "", found["table"], flags=re.MULTILINE)
    return c_dispatch.checked(found["entry"], table, at, goes)


def _code(condition: str) -> str:
    return condition.replace(" && ", " and ")


def _root(expression: str) -> str:
    """Return the argument that an expression such as `x.shape[1]` is of."""
    try:
        node: ast.expr = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    while isinstance(node, ast.Attribute) or (
            isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
