"""A parsed Triton source: its kernels, their launches, and the names of its imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from engine.transformations.transformation import DoesNotApply, NewKnob, Replacement
from harness.search.space.knob_proposals import MARK


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A call `kernel[grid](arguments)` and the function in which it stands."""

    kernel: str
    call: ast.Call
    grid: ast.expr
    function: ast.FunctionDef | None


class ParsedTriton:
    """The tree of a Triton source. Raises DoesNotApply for a source without kernels."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self.tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise DoesNotApply(f"the source cannot be parsed: {error}") from None
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._starts.append(len(source))
        self.language = next((alias.asname or "" for node in ast.walk(self.tree)
                              if isinstance(node, ast.Import) for alias in node.names
                              if alias.name == "triton.language"), "")
        if not self.language or not self.kernels:
            raise DoesNotApply("the source has no kernel with triton.jit and triton.language as "
                               "a name of its own")

    def at(self, line: int, column: int) -> int:
        """Return the character at a line and a column, which the parser counts in bytes."""
        if line >= len(self._starts):
            return len(self.source)
        begin = self._starts[line - 1]
        text = self.source[begin:self._starts[line]]
        return begin + len(text.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.source[begin:end]

    @cached_property
    def kernels(self) -> dict[str, ast.FunctionDef]:
        """The functions that triton.jit compiles, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)
                and any(ast.unparse(own).split("(")[0].rpartition(".")[2] == "jit"
                        for own in node.decorator_list)}

    def is_plain(self, kernel: str) -> bool:
        """Return whether a kernel has no decorator but triton.jit: no autotuner, no heuristics."""
        return len(self.kernels[kernel].decorator_list) == 1

    @cached_property
    def launches(self) -> tuple[KernelLaunch, ...]:
        return tuple(self._launches())

    def _launches(self) -> Iterator[KernelLaunch]:
        functions: list[ast.AST] = [node for node in ast.walk(self.tree)
                                    if isinstance(node, ast.FunctionDef)]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                name = ast.unparse(node.func.value).split(".")[-1]
                around = [own for own in functions
                          if isinstance(own, ast.FunctionDef) and _contains(own, node)]
                inner = max(around, key=lambda own: own.lineno, default=None)
                if name in self.kernels:
                    yield KernelLaunch(kernel=name, call=node, grid=node.func.slice,
                                       function=inner)

    def calls(self, node: ast.AST, name: str) -> list[ast.Call]:
        """Return the calls of a function of triton.language in a part of the source."""
        return [own for own in ast.walk(node) if self.is_call(own, name)
                and isinstance(own, ast.Call)]

    def is_call(self, node: ast.AST, name: str) -> bool:
        """Return whether a node calls a function of triton.language."""
        return isinstance(node, ast.Call) and ast.unparse(node.func) == f"{self.language}.{name}"

    def before_functions(self, lines: Sequence[str]) -> Replacement:
        """Return lines in front of the first function or class of the file."""
        first = next((node for node in self.tree.body if isinstance(
            node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)), None)
        assert first is not None  # there is a kernel
        line = min([first.lineno, *(own.lineno for own in first.decorator_list)])
        at = self._starts[line - 1]
        return Replacement(at, at, "".join(f"{line}\n" for line in lines) + "\n\n")

    def knob_lines(self, knob: NewKnob, *, in_kernels: bool) -> list[str]:
        """Return the lines that declare a knob, and its value as kernels may use it."""
        choices = ", ".join(map(str, knob.choices))
        line = f"{knob.name} = {knob.value}  # kopt: knob {knob.name} in [{choices}] " \
               f"{knob.note}, {MARK}"
        return [line, *([f"{constexpr(knob)} = {self.language}.constexpr({knob.name})"]
                        if in_kernels else [])]


def constexpr(knob: NewKnob) -> str:
    """Return the name of a knob's value inside kernels, which see no other globals."""
    return f"{knob.name}_CONSTEXPR"


def mask_of(call: ast.Call, place: int) -> ast.expr | None:
    """Return a load's or store's mask, a keyword or positional argument."""
    masks = [own.value for own in call.keywords if own.arg == "mask"]
    return masks[0] if masks else call.args[place] if len(call.args) > place else None


def _contains(outer: ast.FunctionDef, node: ast.expr) -> bool:
    return outer.lineno <= node.lineno and (outer.end_lineno or 0) >= (node.end_lineno or 0)
