"""A parsed Triton source: its kernels, their launches, and which names its parts use."""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.transformations.transformation import (
    DoesNotApply,
    EditedSource,
    NewKnob,
    Replacement,
)
from harness.search.space.knob_proposals import MARK


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A call `kernel[grid](arguments)` and the function that contains it."""

    kernel: str
    call: ast.Call
    grid: ast.expr
    function: ast.FunctionDef | None


class ParsedTriton(EditedSource):
    """The tree of a Triton source. Raises DoesNotApply for a source without kernels."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.helpers = list[str]()
        """Lines to add before the first function, after the knobs."""
        self._constants = set[str]()
        try:
            self.tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise DoesNotApply(f"the source cannot be parsed: {error}") from None
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._starts.append(len(source))
        self.language, self._imported = next((
            (alias.asname or "", node.lineno) for node in ast.walk(self.tree)
            if isinstance(node, ast.Import) for alias in node.names
            if alias.name == "triton.language"), ("", 0))
        if not self.language or not self.kernels:
            raise DoesNotApply("the source has no kernel with triton.jit, or does not import "
                               "triton.language under a name")

    def at(self, line: int, column: int) -> int:
        """Return the offset in characters of a line and a column, which is counted in bytes."""
        if line >= len(self._starts):
            return len(self.source)
        begin = self._starts[line - 1]
        text = self.source[begin:self._starts[line]]
        return begin + len(text.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        begin, end = self.span(node)
        return self.source[begin:end]

    @cached_property
    def kernels(self) -> dict[str, ast.FunctionDef]:
        """The functions that triton.jit compiles, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)
                and any(ast.unparse(decorator).split("(")[0].rpartition(".")[2] == "jit"
                        for decorator in node.decorator_list)}

    def is_plain(self, kernel: str) -> bool:
        """Return whether a kernel has no decorator but triton.jit: no autotuner, no heuristics."""
        return len(self.kernels[kernel].decorator_list) == 1

    @cached_property
    def launches(self) -> tuple[KernelLaunch, ...]:
        return tuple(self._launches())

    def _launches(self) -> Iterator[KernelLaunch]:
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                name = ast.unparse(node.func.value).split(".")[-1]
                around = [function for function in functions if function.lineno <= node.lineno
                          and (function.end_lineno or 0) >= (node.end_lineno or 0)]
                inner = max(around, key=lambda function: function.lineno, default=None)
                if name in self.kernels:
                    yield KernelLaunch(kernel=name, call=node, grid=node.func.slice,
                                       function=inner)

    def calls(self, node: ast.AST, name: str) -> list[ast.Call]:
        """Return the calls of a function of triton.language in a part of the source."""
        return [part for part in ast.walk(node) if self.is_call(part, name)
                and isinstance(part, ast.Call)]

    def is_call(self, node: ast.AST, *names: str) -> bool:
        """Return whether a node calls one of these functions of triton.language."""
        return isinstance(node, ast.Call) and ast.unparse(node.func) in [
            f"{self.language}.{name}" for name in names]

    @staticmethod
    def argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
        """Return the argument that a call passes by name or at a place, None if it passes none."""
        named = [keyword.value for keyword in call.keywords if keyword.arg == name]
        return named[0] if named else call.args[place] if len(call.args) > place else None

    @staticmethod
    def called(node: ast.AST) -> set[str]:
        """Return the functions that a part of the source calls, as they are written."""
        return {ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}

    @staticmethod
    def parameters(function: ast.FunctionDef) -> list[str]:
        return [argument.arg for argument in function.args.args]

    @staticmethod
    def single_values(function: ast.FunctionDef) -> dict[str, ast.expr]:
        """Return the values of the names that a function assigns exactly once."""
        count = Counter([*stored(function), *ParsedTriton.parameters(function)])
        return {node.targets[0].id: node.value for node in ast.walk(function)
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                and len(node.targets) == 1 and count[node.targets[0].id] == 1}

    def range_loops(self, node: ast.AST) -> Iterator[tuple[ast.For, ast.Call]]:
        """Yield the loops over a range in a part of the source, and the calls of the ranges."""
        for part in ast.walk(node):
            if isinstance(part, ast.For) and isinstance(part.iter, ast.Call) \
                    and ast.unparse(part.iter.func) in ("range", f"{self.language}.range"):
                yield part, part.iter

    def widened(self, node: ast.AST) -> ast.expr | None:
        """Return the operand of a cast to 64 bits, None for any other node."""
        wide = [f"{self.language}.int64"]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
                and node.func.attr == "to" and list(map(ast.unparse, node.args)) == wide:
            return node.func.value
        if isinstance(node, ast.Call) and self.is_call(node, "cast") \
                and list(map(ast.unparse, node.args[1:])) == wide:
            return node.args[0]
        return None

    def has_own_lines(self, first: ast.expr | ast.stmt, last: ast.expr | ast.stmt) -> bool:
        """Return whether no code precedes `first` on its line or follows `last` on its line."""
        before = self.source[self.at(first.lineno, 0):self.span(first)[0]].strip()
        after = self.source[self.span(last)[1]:].split("\n", 1)[0].strip()
        return not before and (not after or after.startswith("#"))

    def indent(self, node: ast.stmt) -> str:
        """Return what is in front of a statement in its line."""
        return self.source[self.at(node.lineno, 0):self.span(node)[0]]

    def add_argument(self, call: ast.Call, text: str) -> None:
        """Add an argument after the last one of a call."""
        passed = [*(self.span(each)[1] for each in call.args),
                  *(self.span(each)[1] for each in call.keywords)]
        if not passed:
            self.insert(self.source.index("(", self.span(call.func)[1]) + 1, text)
            return
        end = max(passed)
        closing = [end + found.start() for found in re.finditer(
            r"#[^\n]*|\)", self.source[end:self.span(call)[1]]) if found[0] == ")"]
        self.insert(end if len(closing) == 1 else closing[-2] + 1, f", {text}")

    def add_parameters(self, function: ast.FunctionDef, text: str) -> None:
        """Add parameters after those without defaults."""
        arguments = function.args.args
        last = arguments[len(arguments) - len(function.args.defaults) - 1]
        self.insert(self.span(last)[1], f", {text}")

    def constexpr(self, knob: NewKnob) -> str:
        """Return the name of the constexpr with a knob's value: kernels read no other globals."""
        self._constants.add(knob.name)
        return f"{knob.name}_CONSTEXPR"

    def _declarations(self) -> Iterator[Replacement]:
        """Yield the edit that declares the knobs before the first function or class.

        Those before the import of triton.language are skipped: a rewritten module has some.
        """
        lines = list[str]()
        for knob in self.knobs:
            lines.append(f"{knob.name} = {knob.value}  {knob.declared('#', MARK)}")
            if knob.name in self._constants:
                lines.append(f"{self.constexpr(knob)} = {self.language}.constexpr({knob.name})")
        lines += self.helpers
        if not lines:
            return
        first = next((node for node in self.tree.body if isinstance(
            node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
            and node.lineno > self._imported), None)
        assert first is not None  # there is a kernel
        line = min([first.lineno, *(decorator.lineno for decorator in first.decorator_list)])
        at = self._starts[line - 1]
        yield Replacement(at, at, "".join(f"{line}\n" for line in lines) + "\n\n")


def names(node: ast.AST, kind: type[ast.expr_context] = ast.expr_context) -> list[str]:
    """Return the names used in a part, in the order of `ast.walk`, with repetitions."""
    return [part.id for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, kind)]


def stored(node: ast.AST) -> list[str]:
    """Return the names that a part assigns, with repetitions."""
    return names(node, ast.Store)


def loaded(node: ast.AST) -> list[str]:
    """Return the names that a part reads, with repetitions."""
    return names(node, ast.Load)


def target_of(statement: ast.Assign | ast.AugAssign) -> ast.expr:
    return statement.target if isinstance(statement, ast.AugAssign) else statement.targets[0]


class WithValues(ast.NodeTransformer):
    """Replaces names by values."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._values.get(node.id, node))
