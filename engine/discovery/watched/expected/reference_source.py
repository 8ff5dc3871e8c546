"""Write the reference that a test compares the watched function with, as a source of its own.

The values that the caller's variables had when it ended show which of them are arguments and which
are close to the output. From the expression of the expected value, the caller's statements are
followed back to the arguments.
"""

from __future__ import annotations

import ast
import builtins
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engine.discovery.project.sources import read_source
from engine.discovery.watched.entry_source import EntrySource, Function, statements
from engine.discovery.watched.expected import lifted_methods, reference_imports
from engine.discovery.watched.expected.local_values import LocalValues, MemberNames, NoValue
from engine.discovery.watched.expected.statement_names import (
    COMPARISONS,
    GRADIENTS,
    changed,
    loads,
    stores,
    updated,
)
from harness.call_trace.watched_calls import ObservedCall, ObservedCaller

RANDOM = ("rand", "normal_", "uniform_", "seed", "multinomial", "bernoulli")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
BUILT_IN = frozenset(dir(builtins)) | {"__file__", "__name__"}


@dataclass(frozen=True, kw_only=True)
class FoundReference:
    """A reference's source, where it comes from, and which outputs of a call it computes.

    `used` are the arguments on which it depends.
    """

    source: str
    where: str
    call: ObservedCall
    outputs: tuple[int, ...]
    used: tuple[str, ...] = ()


class NoReference(Exception):
    """Raised if a caller has no expected result that the arguments alone determine."""


def find(callers: Sequence[ObservedCaller], entry: EntrySource, names: Sequence[str],
         project: Path) -> tuple[FoundReference | None, str]:
    """Return the reference that uses the most arguments and ""; or None, and why there is none."""
    why, references = "", list[FoundReference]()
    for caller in callers:
        same = [each for each in callers if (each.file, each.first_line, each.function) == (
            caller.file, caller.first_line, caller.function)]
        try:
            references.append(CallerSource(caller, entry, names, project, same).reference())
        except NoReference as error:
            why = why or str(error)
        except NoValue as error:
            why = why or f"{os.path.relpath(caller.file, project)}:{caller.line}: {error}"
        except (SyntaxError, ValueError, RecursionError) as error:
            why = why or f"{caller.file} cannot be read: {error}"
    if references:
        return max(references, key=lambda each: len(each.used)), ""
    return None, why or "the program compares its result with nothing that kopt recognises"


class CallerSource:
    """The source of a function that calls the watched one; `same` are all its observed calls."""

    def __init__(self, caller: ObservedCaller, entry: EntrySource, names: Sequence[str],
                 project: Path, same: Sequence[ObservedCaller]) -> None:
        self.caller, self.entry, self.project, self.same = caller, entry, project, same
        self.file = os.path.relpath(caller.file, project)
        tree = ast.parse(read_source(Path(caller.file)))
        members = MemberNames(caller, names)
        self.owner = members.owner
        self.tree: ast.Module = members.visit(tree)
        self.args = {name: value for name, value in caller.call.args.items() if name in names}
        self.locals = {members.variables.get(each.name, each.name): each for each in caller.locals}
        self.values = LocalValues(self.args, same, entry.sizes)
        self.top = list(statements(self.tree.body))
        self.assigned = {name for node in self.top if isinstance(node, ast.Assign)
                         for name in stores(node)}
        self.unchanged = members.modules | {name for node in ast.walk(self.tree) for name in (
            stores(node) if isinstance(node, ast.Import | ast.ImportFrom) else ())}
        function = self._function()
        self.methods = lifted_methods.lifted(self.tree, function)
        self.body = [*self.methods, *self._flat(function)]
        self.containers = {name for name in self.locals if self.locals[name].value.kind == "packed"}
        self.argument_of = {**self._arguments(), **{name: name for name in members.used}}
        self.given = {*self.argument_of, *self.containers}

    def reference(self) -> FoundReference:
        """Return a function that computes the expected result. Raises NoReference, NoValue."""
        expected = self._expected()
        if not expected:
            raise NoReference(f"{self._place()} compares the result with nothing")
        body: list[ast.stmt] = []
        needed = {name for _, expression in expected.values() for name in loads(expression)}
        needed = self._sliced(needed, max(at for at, _ in expected.values()), body)
        head, preamble = self._leaves(needed)
        definitions = [each for each in body if isinstance(each, DEFINITIONS)
                       and each not in self.methods]
        body = [node for node in body if node not in definitions]
        preamble = [*definitions, *(node for node in preamble if node not in definitions)]
        if any(isinstance(node, ast.ImportFrom) and node.level for node in preamble):
            raise NoReference(f"{self._place()}: the expected result needs a relative import")
        used = [name for name in self.args if name in self.values.used]
        if not used:
            raise NoReference(f"{self._place()}: the expected result does not depend on arguments")
        results = [ast.unparse(each) for _, each in expected.values()]
        lines = [*head, *(line for node in body for line in ast.unparse(node).splitlines()),
                 f"return {', '.join(results)}"]
        if any(GRADIENTS in line for line in lines):
            lines = reference_imports.with_autograd(
                lines, results, [name for name in used if "float" in self.args[name].dtype])
        source = "\n".join([
            f'"""What {self.file} expects of {self.entry.entry}, '
            f'written by kopt new."""', "", *reference_imports.lines(
                preamble, self.caller, self.project), "", "",
            f"def {self.entry.name}({', '.join(used)}):", *(f"    {line}" for line in lines), ""])
        return FoundReference(source=source, outputs=tuple(expected), call=self.caller.call,
                              used=tuple(used), where=f"{self._place()}: {', '.join(results)[:80]}")

    def _place(self) -> str:
        return f"{self.file}:{self.caller.line}"

    def _function(self) -> list[ast.stmt]:
        if self.caller.function == "<module>":
            return self.tree.body
        for node in ast.walk(self.tree):
            if isinstance(node, Function) and node.name == self.caller.function and min(
                    [node.lineno, *(mark.lineno for mark in node.decorator_list)]) \
                    == self.caller.first_line:
                return node.body
        raise NoReference(f"{self._place()}: the caller is not found in its source")

    def _flat(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield statements; blocks around the watched call are replaced by their bodies."""
        for node in body:
            inner = [child for name in ("body", "orelse", "finalbody")
                     for child in getattr(node, name, [])]
            if isinstance(node, ast.For | ast.While | ast.With | ast.If | ast.Try) and \
                    node.lineno <= self.caller.line <= (node.end_lineno or node.lineno):
                yield from self._flat(inner)
            else:
                yield node

    @cached_property
    def _call(self) -> ast.Call | None:
        """The watched call in the caller's source."""
        calls = [node for statement in self.body for node in ast.walk(statement)
                 if isinstance(node, ast.Call)
                 and node.lineno <= self.caller.line <= (node.end_lineno or node.lineno)]
        named = [node for node in calls if self.entry.entry.split(".")[-1]
                 in ast.unparse(node.func) or self.entry.name in ast.unparse(node.func)
                 or ast.unparse(node.func) == self.owner]
        return named[0] if named else None

    def _arguments(self) -> dict[str, str]:
        """Return the argument that each variable is: by its value, else by its use in the call."""
        known = {name: local.argument for name, local in self.locals.items()
                 if local.argument in self.args}
        if self._call is not None:
            passed = [*zip(self.caller.call.passed, self._call.args, strict=False),
                      *((each.arg, each.value) for each in self._call.keywords)]
            for name, value in passed:
                local = self.locals.get(value.id) if isinstance(value, ast.Name) else None
                if name in self.args and isinstance(value, ast.Name) and value.id not in known \
                        and (local is None or local.value.kind not in ("tensor", "packed")):
                    known[value.id] = name or ""
        return known

    def _expected(self) -> dict[int, tuple[int, ast.expr]]:
        """Return by output the statement's number and the expression of the expected value.

        A tensor that the function fills and returns is one output.
        """
        expected: dict[int, tuple[int, ast.expr]] = {}
        for at, statement in enumerate(self.body):
            for node in ast.walk(statement):
                if (pair := self._compared(node)) is not None and pair[0] not in expected:
                    expected[pair[0]] = at, pair[1]
        for name, local in self.locals.items():
            if local.near >= 0 and local.near not in expected:
                expected[local.near] = len(self.body), ast.Name(name, ast.Load())
        tensors = self.caller.call.outputs
        first = {tensors[output] if output < len(tensors) else output: output
                 for output in sorted(expected, reverse=True)}
        return {output: expected[output] for output in sorted(first.values())}

    def _compared(self, node: ast.AST) -> tuple[int, ast.expr] | None:
        """Return the compared output and the expected expression; None for no comparison."""
        sides: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).lower().split(".")[-1]
            if any(word in name for word in COMPARISONS):
                sides = [each for each in node.args if not isinstance(each, ast.Constant)]
                sides += [each.value for each in node.keywords
                          if each.arg in ("actual", "expected", "desired", "input", "other")]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            sides = [node.left, node.right]
        outputs = [self._output(side) for side in sides]
        present = [output for output in outputs if output is not None]
        others = [side for side, output in zip(sides, outputs, strict=True)
                  if output is None and self._is_expected(side)]
        return (present[0], others[0]) if present and others else None

    def _output(self, side: ast.expr) -> int | None:
        """Return the number of the output that occurs in an expression, None if none does."""
        for node in ast.walk(side):
            if isinstance(node, ast.Name) and node.id in self.locals \
                    and self.locals[node.id].output >= 0:
                return self.locals[node.id].output
            if node is self._call:
                return 0
        return None

    def _is_expected(self, side: ast.expr) -> bool:
        """Return whether an expression may be the expected value: computed, and not a number."""
        locals_ = [self.locals[name] for name in loads(side) if name in self.locals]
        if isinstance(side, ast.Name):
            local = self.locals.get(side.id)
            return local is not None and local.value.kind == "tensor" and not local.argument
        return isinstance(side, ast.Call | ast.Attribute | ast.BinOp | ast.Subscript) and any(
            local.value.kind == "tensor" for local in locals_)

    def _sliced(self, needed: set[str], end: int, into: list[ast.stmt]) -> set[str]:
        """Insert in `into` the statements before `end` that compute `needed`; return the rest."""
        for statement in reversed(self.body[:end]):
            if any(node is self._call for node in ast.walk(statement)):
                if needed & stores(statement) - self.given:
                    raise NoReference(f"{self._place()}: the expected result is computed from the "
                                      "function's own result")
                continue
            missing = needed - self.given
            defined = stores(statement)
            is_of_result = any(self.locals[name].output >= 0 for name in loads(statement)
                               if name in self.locals)
            if not missing & (defined - {GRADIENTS} if is_of_result else
                              defined | (changed(statement) - self.unchanged)):
                continue
            if defined & missing:
                needed -= defined - updated(statement)
            needed |= loads(statement)
            into.insert(0, statement)
        if drawn := [word for node in into for word in RANDOM if word in ast.unparse(node)]:
            raise NoReference(f"{self._place()}: the expected result depends on values drawn with "
                              f"{drawn[0]} that are not arguments")
        return needed

    def _leaves(self, needed: set[str]) -> tuple[list[str], list[ast.stmt]]:
        """Return lines that define names from arguments, and the file's definitions of others."""
        head, last = list[str](), list[str]()
        preamble: dict[ast.stmt, None] = {}
        for name in sorted(needed - BUILT_IN):
            if (argument := self.argument_of.get(name)) is not None:
                self.values.used.add(argument)
                head += [f"{name} = {argument}"] if name != argument else []
            elif name in self.containers:
                last.append(f"{name} = {self.values.container(self.locals[name])}")
            elif "device" in name.lower() and name in self.assigned:
                head.append(f"{name} = {self.values.device()}")
            elif self._define(name, preamble):
                continue
            elif name in self.locals:
                head.append(f"{name} = {self.values.text(self.locals[name])}")
            else:
                raise NoReference(f"{self._place()}: the expected result uses {name!r}, which is "
                                  "not an argument")
        is_module = self.caller.function == "<module>"
        return [*head, *last], [node for node in self.top if node in preamble and not (
            is_module and node in self.body and not isinstance(node, DEFINITIONS))]

    def _define(self, name: str, into: dict[ast.stmt, None]) -> bool:
        """Collect the file's definition of a name and those it uses; return whether it has one."""
        if self.caller.function == "<module>" and name in self.locals and \
                self.locals[name].value.kind != "literal":
            return False
        for node in self.top:
            if name not in stores(node) or not isinstance(
                    node, (*DEFINITIONS, ast.Assign, ast.AnnAssign)):
                continue
            if node not in into:
                into[node] = None
                if isinstance(node, Function) and any("fixture" in ast.unparse(mark)
                                                      for mark in node.decorator_list):
                    raise NoReference(f"{self._place()}: {name} is a fixture")
                for other in loads(node) - BUILT_IN:
                    self._define(other, into)
            return True
        return False
