"""Propose knobs for a Triton source: sizes, warps and stages of its launches, constexpr defaults.

Where the grid of a launch depends on a size, the knob sets it there too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.search.space.knob_edits import (
    SIZES,
    USUAL,
    Edit,
    KnobProposal,
    begin_of,
    choices_around,
    end_of,
    is_size,
    knob_name,
    line_starts,
)

OVERRIDES = (64, 128, 256, 512, 1024, 2048, 4096)
TILES = (16, 32, 64, 128, 256)
"""Sizes of a matrix product's tiles, in place of OVERRIDES: compiling larger ones takes minutes."""
MOST_ELEMENTS = 4096  # of a block, where a launch has one size and its kernel no product


def proposals(source: str) -> list[KnobProposal]:
    """Return the proposals, without those that want the same number of a grid for two knobs."""
    found = list(_TritonSource(source, ast.parse(source), tuple(line_starts(source))).proposals())
    knobs_of: dict[int, set[int]] = {}
    for each in found:
        for edit in each.edits:
            knobs_of.setdefault(edit.begin, set()).add(each.begin)
    return [each for each in found if all(len(knobs_of[edit.begin]) == 1 for edit in each.edits)]


@dataclass(frozen=True)
class _TritonSource:
    source: str
    tree: ast.Module
    starts: Sequence[int]

    @cached_property
    def _products(self) -> set[str]:
        """The names of the functions that multiply matrices with `tl.dot`."""
        return {function.name for function in ast.walk(self.tree)
                if isinstance(function, ast.FunctionDef) and any(
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) in ("tl.dot", "tl.dot_scaled")
                    for node in ast.walk(function))}

    def proposals(self) -> Iterator[KnobProposal]:
        for function in ast.walk(self.tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            args = [*function.args.posonlyargs, *function.args.args]
            defaults = [(args[len(args) - len(function.args.defaults) + index], value)
                        for index, value in enumerate(function.args.defaults)]
            for arg, value in defaults:
                if arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation):
                    yield from self._literal(value, arg.arg, function.name, "default")
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    yield from self._of_launch(function, node, node.func)

    def _of_launch(self, function: ast.FunctionDef, call: ast.Call,
                   launched: ast.Subscript) -> Iterator[KnobProposal]:
        kernel = re.findall(r"[^\W\d]\w*", f"kernel {ast.unparse(launched.value)}")[-1]
        grid = self._value(function, launched.slice) or launched.slice
        count = sum(bool(SIZES.search(each.arg or "")) for each in call.keywords
                    if each.arg not in USUAL)
        is_product = kernel in self._products
        most = MOST_ELEMENTS if not is_product and count == 1 else 0
        for keyword in call.keywords:
            if keyword.arg is None or not is_size(keyword.arg):
                continue
            value = self._value(function, keyword.value)
            size = value if isinstance(value, ast.Constant) else keyword.value
            in_grid = [] if keyword.arg in USUAL else list(_in_grid(grid, size))
            if isinstance(size, ast.Constant):
                yield from self._literal(size, keyword.arg, kernel, "launch", most, in_grid)
            else:
                sizes = USUAL.get(keyword.arg) or (TILES if is_product else OVERRIDES)
                yield self._override(keyword, value, kernel, sizes, in_grid)

    def _literal(self, node: ast.expr, name: str, kernel: str, why: str, most: int = 0,
                 in_grid: Sequence[ast.expr] = ()) -> Iterator[KnobProposal]:
        if not is_size(name) or not isinstance(node, ast.Constant) or \
                type(node.value) is not int or node.value < 1:
            return
        knob = knob_name(kernel, name)
        yield KnobProposal(
            name=knob, line=node.lineno, value=node.value,
            choices=choices_around(name, node.value, most), why=f"{why} of {kernel}",
            edits=(self._edit(node, knob), *(
                self._edit(part, knob if ast.unparse(part) == str(node.value) else f"({knob} - 1)")
                for part in in_grid)))

    def _override(self, keyword: ast.keyword, assigned: ast.expr | None, kernel: str,
                  sizes: Sequence[int], in_grid: Sequence[ast.expr]) -> KnobProposal:
        """Return a knob that overrides a size, where it is assigned if the grid needs it too."""
        node, knob = keyword.value, knob_name(kernel, keyword.arg or "")
        first, others = (node, in_grid) if assigned is None or not in_grid else (assigned, ())
        return KnobProposal(
            name=knob, line=node.lineno, value=0, choices=(0, *sizes),
            why=f"overrides {self._text(node)[:30]} of {kernel}",
            edits=(self._edit(first, self._overridden(first, knob)), *(
                self._edit(part, f"({self._overridden(part, knob)})") for part in others)))

    def _overridden(self, node: ast.expr, knob: str) -> str:
        text = self._text(node)
        is_simple = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        return f"{knob} or {text}" if is_simple else f"{knob} or ({text})"

    def _edit(self, node: ast.expr, written: str) -> Edit:
        return Edit(begin=begin_of(node, self.starts), end=end_of(node, self.starts),
                    written=written)

    def _text(self, node: ast.expr) -> str:
        return self.source.encode()[
            begin_of(node, self.starts):end_of(node, self.starts)].decode()

    def _value(self, function: ast.FunctionDef, node: ast.expr) -> ast.expr | None:
        """Return what is assigned to a variable in a function, or a literal in its module.

        None if it is assigned more than once, or a parameter.
        """
        if not isinstance(node, ast.Name) or node.id in {
                arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}:
            return None
        count, value = _assigned(function, node.id)
        if not count:
            count, value = _assigned(self.tree, node.id)
            value = value if isinstance(value, ast.Constant) else None
        return value if count == 1 else None


def _in_grid(grid: ast.expr, size: ast.expr) -> Iterator[ast.expr]:
    """Yield where a grid divides by a size, and what it adds before to round up."""
    text = ast.unparse(size)
    is_number = isinstance(size, ast.Constant) and isinstance(size.value, int)
    less_one = str(int(text) - 1) if is_number else ""
    for node in ast.walk(grid):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cdiv"):
            divisors, terms = node.args[1:], list[ast.expr]()
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            divisors, terms = [node.right], list(_terms(node.left))
        else:
            continue
        if text in map(ast.unparse, divisors):
            yield from (part for part in (*divisors, *terms)
                        if ast.unparse(part) in (text, less_one))


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _assigned(scope: ast.AST, name: str) -> tuple[int, ast.expr | None]:
    """Return how often a name is assigned, and the value of an assignment."""
    stores = {each for each in ast.walk(scope) if isinstance(each, ast.Name)
              and each.id == name and isinstance(each.ctx, ast.Store)}
    pairs = [pair for each in ast.walk(scope) if isinstance(each, ast.Assign)
             for pair in _pairs(each.targets[0], each.value)]
    return len(stores), next((value for target, value in pairs if target in stores), None)


def _pairs(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """Return an assignment's pairs of target and value: `a, b = 1, 2` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) \
            and len(target.elts) == len(value.elts):
        return zip(target.elts, value.elts, strict=True)
    return [(target, value)]
