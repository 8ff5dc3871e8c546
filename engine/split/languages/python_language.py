"""Python, with or without Triton, as a language whose sources can be split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine.split.languages import dispatch, python_names
from engine.split.languages.conditions import Condition
from engine.split.languages.dispatch import DispatchBlock
from engine.split.languages.syntax import EntryFunction, Item

_BLOCK = re.compile(r"# kopt split: (?P<entry>\w+) (?P<table>[^\n]*\n(?:#[^\n]*\n)+)(?P<code>.*?)"
                    r"# kopt split: end\n?", re.DOTALL)
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*|\[(?:\d+|'[^']*'|\"[^\"]*\")\])*")
"""An argument, or an expression over it such as `x.shape[1]`."""


class Python:
    """A module: knobs are its constants, and an entry is a plain function that the module itself
    does not call.

    Dispatchers test arguments, or expressions over them such as `x.shape[1]`.
    """

    gap = "\n\n"

    def __init__(self, knobs: str = "python") -> None:
        self.knobs = knobs

    def items(self, source: str) -> tuple[Item, ...]:
        return python_names.items(source)

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        return python_names.renamed(text, name_of)

    def names(self, source: str) -> frozenset[str]:
        return frozenset(python_names.WORD.findall(source))

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        return all((match := _ARGUMENT.fullmatch(column)) is not None
                   and match[1] in entry.columns for column in columns)

    def read(self, source: str) -> tuple[str, tuple[DispatchBlock, ...]]:
        return dispatch.read(source, _BLOCK, _read_block)

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        assert kernel.entry is not None  # otherwise it would have no dispatcher
        arguments = ", ".join(kernel.entry.arguments)
        lines = [*(f"# {line}".replace("#    ", "#   ") for line in dispatch.table(block)),
                 f"def {block.entry}({kernel.params}):"]
        for branch in block.branches:
            lines += [f"    if {_code(branch.condition)}:",
                      f"        return {branch.kernel}({arguments})"]
        return "\n".join(["", *lines, f"    return {block.default}({arguments})",
                          "# kopt split: end", ""])

    def comment(self, text: str) -> str:
        return f"# {text}\n"

    def is_header(self, item: Item) -> bool:
        return item.text.startswith(("import ", "from "))


def _read_block(match: re.Match[str], at: int) -> DispatchBlock:
    code = re.sub(r"\s+", " ", match["code"])

    def calls(kernel: str, condition: Condition | None) -> bool:
        before = "" if condition is None else f"if {_code(condition)}:"
        return f"{before} return {kernel}(" in code

    table = re.sub(r"^#", "", match["table"], flags=re.MULTILINE)
    return dispatch.checked(match["entry"], table, at, calls)


def _code(condition: Condition) -> str:
    return str(condition).replace(" && ", " and ")
