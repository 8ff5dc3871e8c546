"""The Triton templates of knowledge/backend/triton, as its templates.yaml describes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from engine.rewrites.module_graph import ModuleGraph, Node, Ref, TensorForm, refs_of
from harness.formats import yaml_document

FOLDER = Path(__file__).resolve().parents[2] / "knowledge" / "backend" / "triton"
POINTWISE = "pointwise"
FUNCTIONS = {each.__name__: each for each in (len, set, isinstance, int, str, all, any, min)}
"""What conditions may call."""
OPERATORS = {
    "add": "add", "radd": "add", "sub": "sub", "mul": "mul", "rmul": "mul", "truediv": "div",
    "div": "div", "neg": "neg", "matmul": "matmul", "abs": "abs", "pow": "pow", "rsub": "rsub"}
"""Methods of operators that compute what the torch function of the second name does."""
SAME_NAMES = {"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div",
              "negative": "neg", "absolute": "abs", "clip": "clamp"}


class TargetReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """PyTorch functions and the equivalent call of the template's entry."""

    targets: tuple[str, ...]
    call: str
    when: str = ""
    result: str = ""
    """`values`: the call gives the first of the pair that PyTorch returns."""
    rival: str = ""
    """As of a template, for this call."""
    alone: str = ""
    """A condition: when the call may gain with no elementwise node fused; always if empty."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """An expression of several torch functions, and the equivalent call of the entry."""

    expression: str
    call: str
    when: str = ""
    result: str = ""
    fuses: bool = True
    """Whether elementwise nodes after it may join the template's epilogue."""
    results: tuple[str, ...] = ()
    """Names in the expression, `(name := …)`, whose values the call returns after its own."""


class Alternative(msgspec.Struct, frozen=True, array_like=True):
    """One expression for a named part of patterns, and what it adds to call and condition."""

    expression: str
    words: str = ""
    when: str = ""


class TritonTemplate(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A template; its entry and its file have the same name."""

    name: str
    computes: str
    replaces: tuple[TargetReplacement, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    patterns: tuple[Pattern, ...] = ()
    parts: dict[str, tuple[Alternative, ...]] = {}
    fuses: dict[str, str] = {}
    conditions: str = ""
    places: str = ""
    """An expression of the kernel: the size of one channel, all dimensions from the third on."""
    rival: str = ""
    """A library that is as fast or faster at most shapes."""

    @cached_property
    def forms(self) -> tuple[Pattern, ...]:
        """Return the patterns with each choice of alternatives for the parts that they name."""
        return tuple(form for pattern in self.patterns for form in _expanded(pattern, self.parts))

    @property
    def text(self) -> str:
        return (FOLDER / f"{self.name}.py").read_text()


class ElementwiseForm(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of Triton code over `value` for PyTorch targets; `{name}` is an argument."""

    targets: tuple[str, ...]
    code: str
    when: str = ""
    defaults: dict[str, Any] = {}


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    templates: tuple[TritonTemplate, ...]
    expressions: tuple[ElementwiseForm, ...]
    takes_lone: bool = True
    """Whether calls are taken that may gain only with something fused."""

    def find(self, graph: ModuleGraph,
             node: Node) -> Iterator[tuple[TritonTemplate, TargetReplacement]]:
        """Yield the templates that compute a node and whose conditions hold, special ones first.

        In the table they follow the general ones.
        """
        for template, replacement in self._of_target(node) if node.written is None else ():
            if tensors_of(node) <= names_in(replacement.call) and holds(
                    replacement.when, values(graph, node.bound, node.form.dtype)):
                yield template, replacement

    def _of_target(self, node: Node) -> Iterator[tuple[TritonTemplate, TargetReplacement]]:
        names = spellings(node.target)
        for template in reversed(self.templates):
            yield from ((template, each) for each in template.replaces
                        if not names.isdisjoint(each.targets))

    def refused(self, graph: ModuleGraph, node: Node) -> str:
        """Return why the closest template of a node's function does not fit it, "" without one.

        The closest one fails the fewest comparisons. An equality counts twice: a different value
        is further away than one that is too small.
        """
        bound = values(graph, node.bound, node.form.dtype)
        lacking = list[tuple[str, list[str]]]()
        for template, each in self._of_target(node):
            lacks = [part for part in parts_of(each.when) if not holds(part, bound)]
            if other := sorted(tensors_of(node) - names_in(each.call)):
                lacks.append(f"no tensor as {' or '.join(other)}")
            lacking.append((template.name, lacks))
        name, lacks = min(lacking, key=lambda each: sum(map(_comparisons, each[1])),
                          default=("", []))
        if not lacks:
            return ""
        missing = set(re.findall(r"\w+", " ".join(lacks)))
        here = [f"{each} is {value.dtype} {list(value.shape)}" if isinstance(value, TensorForm)
                else f"{each} is {value!r}" for each, value in bound.items() if each in missing]
        return f"the closest template, {name}, needs {' and '.join(lacks)}" \
            + (f"; here {', '.join(here)}" if here else "")

    def general(self) -> Catalog:
        """Return the table in which general templates are preferred to special ones."""
        return msgspec.structs.replace(self, templates=self.templates[::-1])

    def unrivalled(self) -> Catalog:
        """Return the table without the templates and calls that have a rival."""
        return msgspec.structs.replace(self, takes_lone=False, templates=tuple(
            msgspec.structs.replace(template, replaces=tuple(
                each for each in template.replaces if not each.rival))
            for template in self.templates if not template.rival))

    def named(self, name: str) -> TritonTemplate:
        return next(each for each in self.templates if each.name == name)

    def form(self, node: Node) -> tuple[ElementwiseForm, dict[str, Any]] | None:
        """Return the lines for an elementwise node with its arguments, None if it has none."""
        names = spellings(node.target)
        for form in self.expressions:
            if not names.isdisjoint(form.targets):
                arguments = form.defaults | node.bound
                if holds(form.when, arguments):
                    return form, arguments
        return None


def _expanded(pattern: Pattern,
              parts: Mapping[str, tuple[Alternative, ...]]) -> Iterator[Pattern]:
    name = next((name for name in parts if re.search(rf"\b{name}\b", pattern.expression)), None)
    if name is None:
        yield pattern
        return
    for choice in parts[name]:
        yield from _expanded(msgspec.structs.replace(
            pattern, expression=re.sub(rf"\b{name}\b", choice.expression, pattern.expression),
            call=pattern.call.removesuffix(")") + f", {choice.words})" if choice.words
            else pattern.call,
            when=" and ".join(f"({each})" for each in (pattern.when, choice.when) if each)), parts)


@cache
def catalog() -> Catalog:
    return msgspec.convert(yaml_document.read(FOLDER / "templates.yaml").value, Catalog)


@cache
def spellings(target: str) -> frozenset[str]:
    """Return the equivalent names of a torch function: as a method, as an operator."""
    head, _, last = target.removesuffix(".__get__").rpartition(".")
    if last.startswith("__"):
        last = OPERATORS.get(last.strip("_"), last)
    elif head != "torch.Tensor" or last.rstrip("_") != last:
        last = last.rstrip("_")
    last = SAME_NAMES.get(last, last)
    names = {target, f"{head}.{last}"}
    if head in ("torch.Tensor", "torch", "torch.special", "torch.functional") or \
            last in ("softmax", "log_softmax"):
        names |= {f"torch.{last}", f"torch.Tensor.{last}"}
    return frozenset(names)


def tensors_of(node: Node) -> set[str]:
    """Return the arguments that are tensors: a call that leaves one out computes something else.

    For example, torch.min(a, b) is no reduction.
    """
    return {name for name, value in node.bound.items() if any(True for _ in refs_of(value))}


@cache
def parts_of(when: str) -> tuple[str, ...]:
    """Return the parts of a condition that must all hold."""
    if not when:
        return ()
    whole = ast.parse(when, mode="eval").body
    if isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.And):
        return tuple(map(ast.unparse, whole.values))
    return (when,)


def _comparisons(part: str) -> int:
    """Return how many comparisons a part of a condition has; an equality counts twice."""
    if part.startswith("no "):
        return 1
    return sum(len(node.ops) + sum(isinstance(op, ast.Eq) for op in node.ops)
               for node in ast.walk(ast.parse(part)) if isinstance(node, ast.Compare)) or 1


@cache
def names_in(call: str) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(ast.parse(call, mode="eval"))
                     if isinstance(node, ast.Name))


def values(graph: ModuleGraph, bound: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return arguments as conditions see them: a tensor has `shape`, `dtype` and `dim()`.

    `dtype` is the result's. Layers have arguments that their functions lack.
    """
    more = {"track_running_stats": bound.get("running_mean") is not None, "dtype": dtype}
    return more | {name: graph.form(value) if isinstance(value, Ref) else value
            for name, value in bound.items() if name != "dtype"}


def holds(when: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a condition of templates.yaml holds; a tensor counts as a value that is given.

    The conditions are files of kopt: they are expressions over the arguments and nothing else.
    """
    if not when:
        return True
    try:
        return bool(eval(when, {"__builtins__": FUNCTIONS}, dict(arguments)))
    except (NameError, TypeError, AttributeError, LookupError, ArithmeticError):
        return False
