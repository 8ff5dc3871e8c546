"""What a straight-line kernel reads and writes in a launch, in terms of the launch's arguments."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from engine.transformations.triton.host_values import HostValues
from engine.transformations.triton.index_sums import IndexSums, lanes, text
from engine.transformations.triton.parsed_triton import KernelLaunch, ParsedTriton

_REDUCTIONS = ("sum", "max", "min")
"""Functions that reduce a block; called with two values, they work lane by lane."""
_LANEWISE = ("arange", "load", "cast", "where", "exp", "exp2", "log", "log2", "sqrt", "rsqrt",
             "sigmoid", "abs", "maximum", "minimum", "fma", "erf", "sin", "cos", "floor", "ceil",
             "program_id", "store", "zeros_like", "multiple_of", "max_contiguous", "math.rsqrt",
             "math.exp", "math.log", "math.sqrt", "math.erf", "math.tanh")


@dataclass(frozen=True, kw_only=True)
class MemoryAccess:
    """A load or a store.

    `tensor` is the accessed tensor's name if the launching function has allocated it, else "".
    `address` is the offset in it, `mask` the condition, "" for none. `blocks` are the lanes of the
    address.
    """

    call: ast.Call
    is_store: bool
    tensor: str
    address: str
    mask: str
    blocks: frozenset[str]
    stored: frozenset[str]
    """The lanes that the stored value surely has."""

    def mentions(self, tensor: str) -> bool:
        """Return whether it accesses a tensor, or its address or mask depends on that tensor."""
        pattern = rf"\${re.escape(tensor)}(?![\w.])"
        return self.tensor == tensor or bool(re.search(pattern, self.address + self.mask))


class LaunchedKernel:
    """A kernel with the arguments of one launch; `fault` says why it is not understood."""

    def __init__(self, parsed: ParsedTriton, launch: KernelLaunch, values: HostValues) -> None:
        self.parsed, self.launch = parsed, launch
        self._values, self._tensors = values, values.allocated
        self.function = parsed.kernels[launch.kernel]
        self.bound: dict[str, ast.expr] = {}
        self.options: dict[str, str] = {}
        self.accesses: list[MemoryAccess] = []
        self.is_lanewise = True
        self._blocks: dict[str, frozenset[str]] = {}
        self.fault = self._bind() or self._read()

    @property
    def statements(self) -> list[ast.stmt]:
        """The body without its docstring."""
        return [statement for statement in self.function.body if not (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))]

    def _bind(self) -> str:
        name, arguments = self.launch.kernel, self.function.args
        first = self.function.body[0]
        if self.parsed.source[self.parsed.at(first.lineno, 0):self.parsed.span(first)[0]].strip():
            return f"the body of {name} begins on the line of its signature"
        call = self.launch.call
        if not self.parsed.is_plain(name) or arguments.vararg or arguments.kwarg \
                or arguments.kwonlyargs or arguments.posonlyargs:
            return f"{name} has an autotuner, heuristics or unusual parameters"
        if any(isinstance(part, ast.Starred) for part in call.args) or any(
                part.arg is None for part in call.keywords) or len(call.args) > len(arguments.args):
            return f"a launch of {name} does not list its arguments"
        names = self.parsed.parameters(self.function)
        defaults = arguments.defaults
        self.bound = dict(zip(names[len(names) - len(defaults):], defaults, strict=True))
        self.bound.update(zip(names, call.args, strict=False))
        for keyword in call.keywords:
            assert keyword.arg is not None
            if keyword.arg in names:
                self.bound[keyword.arg] = keyword.value
            else:
                self.options[keyword.arg] = ast.unparse(keyword.value)
        return "" if set(names) == set(self.bound) else f"a launch of {name} lacks an argument"

    def _read(self) -> str:
        """Follow the statements in their order; return why one of them is not understood."""
        names = {name: f"${self._values.text(value)}" for name, value in self.bound.items()}
        sums = IndexSums(self.parsed, {
            name: Counter({(): int(text[1:])} if text[1:].isdigit() else {(text,): 1})
            for name, text in names.items()}, scalars=names.values())
        for statement in self.statements:
            what = f"line {statement.lineno} of {self.launch.kernel}"
            target, value = _assigned(statement)
            if value is None or (not target and not self.parsed.is_call(value, "store")):
                return f"{what} is not a simple assignment or store"
            if not all(map(self._is_known, self.parsed.called(value))):
                return f"{what} calls a function that may use other lanes, programs or memory"
            self.is_lanewise &= not any(
                self.parsed.is_call(node, *_REDUCTIONS) for node in ast.walk(value))
            self.accesses += self._accesses(sums, value)
            if target:
                self._blocks[target] = self._lanes(sums, value)
                sums.set(target, value)
        return ""

    def _is_known(self, name: str) -> bool:
        """Return whether a function computes lane by lane from its arguments, or reduces them."""
        bare_name = name.removeprefix(f"{self.parsed.language}.")
        if name.endswith((".to", ".cast")):
            return True
        if bare_name != name:
            return bare_name in (*_LANEWISE, *_REDUCTIONS)
        helper = self.parsed.kernels.get(name)
        if helper is not None:
            called = {ast.unparse(node.func) for node in ast.walk(helper)
                      if isinstance(node, ast.Call) and node not in helper.decorator_list}
            return all(self._is_known(other) and other.rpartition(".")[2] not in (
                "load", "store", "program_id", "arange", *_REDUCTIONS) for other in called - {name})
        return name in ("float", "rsqrt", "tanh", "erf")

    def _accesses(self, sums: IndexSums, value: ast.expr) -> Iterator[MemoryAccess]:
        for call in ast.walk(value):
            is_store = self.parsed.is_call(call, "store")
            is_load = self.parsed.is_call(call, "load")
            if not isinstance(call, ast.Call) or not (is_store or is_load):
                continue
            place = sums.of(call.args[0])
            tensor = next((name for name in self._tensors if place[(f"${name}",)] == 1), "")
            address = Counter({term: count for term, count in place.items()
                               if term != (f"${tensor}",)})
            mask = self.parsed.argument(call, "mask", 2 if is_store else 1)
            yield MemoryAccess(call=call, is_store=is_store, tensor=tensor, address=text(address),
                               mask="" if mask is None else text(sums.of(mask)),
                               blocks=lanes(place), stored=self._lanes(
                                   sums, call.args[1]) if is_store else frozenset())

    def _lanes(self, sums: IndexSums, node: ast.expr) -> frozenset[str]:
        """Return the blocks of lanes that a value surely has."""
        if isinstance(node, ast.Name):
            return self._blocks.get(node.id, frozenset())
        if isinstance(node, ast.Call):
            if self.parsed.is_call(node, *_REDUCTIONS):
                return frozenset()
            if self.parsed.is_call(node, "load"):
                return lanes(sums.of(node.args[0]))
            if self.parsed.is_call(node, "arange", "program_id"):
                return lanes(sums.of(node))
            inner = [node.func.value] if isinstance(node.func, ast.Attribute) \
                and ast.unparse(node.func.value) != self.parsed.language else node.args
            return frozenset().union(*(self._lanes(sums, part) for part in inner))
        if isinstance(node, ast.Subscript):
            return lanes(sums.of(node))
        return frozenset().union(*(self._lanes(sums, part) for part in ast.iter_child_nodes(node)
                                   if isinstance(part, ast.expr)))


def _assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return the name that a statement sets and its value; for a bare call, "" and the call."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
            whole = ast.BinOp(ast.Name(name, ast.Load()), op, value)
            return name, ast.fix_missing_locations(ast.copy_location(whole, target))
        case ast.Expr(value=ast.Call() as value):
            return "", value
    return "", None
