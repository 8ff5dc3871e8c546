"""`triton-invariant-loads`: a load from one place in all steps of a loop moves before the loop.

A compiler may not do so in a loop that stores, as the stores could change what is loaded. Here they
cannot: each goes to a tensor that the launching function has just allocated.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from engine.transformations.transformation import Transformation, Transformed, first_places
from engine.transformations.triton.host_values import HostValues
from engine.transformations.triton.parsed_triton import ParsedTriton, WithValues, names, stored

_PURE = ("arange", "full", "zeros", "cast", "cdiv", "minimum", "maximum", "where", "multiple_of",
         "max_contiguous", "program_id", "num_programs", "expand_dims", "broadcast_to")


class InvariantLoads(Transformation):
    name = "triton-invariant-loads"
    aim = "loads that a loop repeats from one place, once before it"

    def apply(self, source: str) -> Transformed:
        parsed, why = ParsedTriton(source), "no loop of a kernel loads the same place in each step"
        places = list[tuple[_Loop, ast.Call, str]]()
        for function in parsed.kernels.values():
            for loop in _loops(parsed, function):
                for call, text in loop.invariant_loads():
                    fault = loop.fault(call)
                    why = fault or why
                    places += [] if fault else [(loop, call, text)]
        places = first_places(places, why)
        for loop, call, text in places:
            fixed = parsed.free("fixed")
            parsed.insert(parsed.at(loop.node.lineno, 0),
                          f"{parsed.indent(loop.node)}{fixed} = {text}\n")
            parsed.put(*parsed.span(call), fixed)
        return parsed.transformed("loaded once before the loop",
                                  [call.lineno for _, call, _ in places])


def _loops(parsed: ParsedTriton, function: ast.FunctionDef) -> Iterator[_Loop]:
    """Yield a function's range loops, without those that count down."""
    for node, steps in parsed.range_loops(function):
        values = [parsed.text(argument) for argument in steps.args]
        is_downwards = len(values) == 3 and values[2].startswith("-")
        if not node.orelse and not is_downwards:
            begin, bound = ("0", values[0]) if len(values) == 1 else values[:2]
            yield _Loop(parsed=parsed, function=function, node=node, begin=begin, bound=bound)


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """A loop over a range; `begin` and `bound` are expressions of the source."""

    parsed: ParsedTriton
    function: ast.FunctionDef
    node: ast.For
    begin: str
    bound: str

    def invariant_loads(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield the loop's loads whose address is the same in all steps, each with its new text.

        That text is for before the loop; it loads nothing if the loop has no steps.
        """
        changed = stored(self.node)
        values: dict[str, ast.expr] = {}
        for statement in self.node.body:
            if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
                continue
            for call in self.parsed.calls(statement, "load"):
                whole = WithValues(values).visit(copy.deepcopy(call))
                if not set(changed).intersection(names(whole)) \
                        and not any(keyword.arg == "volatile" for keyword in call.keywords) \
                        and len(self.parsed.calls(whole, "load")) == 1 and self._is_pure(whole):
                    yield call, self._guarded(whole)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) \
                    and changed.count(statement.targets[0].id) == 1:
                value = WithValues(values).visit(copy.deepcopy(statement.value))
                if self._is_pure(value) and not set(changed).intersection(names(value)):
                    values[statement.targets[0].id] = value

    def _is_pure(self, node: ast.expr) -> bool:
        """Return whether a value calls only functions that compute indices, and `load`."""
        tl = self.parsed.language
        return all(ast.unparse(part.func).removeprefix(f"{tl}.") in (*_PURE, "load", "float")
                   or (isinstance(part.func, ast.Attribute) and part.func.attr == "to")
                   for part in ast.walk(node) if isinstance(part, ast.Call))

    def _guarded(self, call: ast.Call) -> str:
        is_entered = f"{self.begin} < {self.bound}"
        masks = [keyword for keyword in call.keywords if keyword.arg == "mask"]
        if self.begin.isdigit() and self.bound.isdigit():
            return ast.unparse(call)
        if masks:
            masks[0].value = ast.parse(f"({ast.unparse(masks[0].value)}) & ({is_entered})",
                                       mode="eval").body
        elif len(call.args) > 1:
            call.args[1] = ast.parse(f"({ast.unparse(call.args[1])}) & ({is_entered})",
                                     mode="eval").body
        else:
            call.keywords.append(ast.keyword("mask", ast.parse(is_entered, mode="eval").body))
        return ast.unparse(call)

    def fault(self, call: ast.Call) -> str:
        """Return why what is loaded may change while the loop runs, "" if it cannot."""
        line, tl = f"line {call.lineno} of {self.function.name}", self.parsed.language
        for node in ast.walk(self.node):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in self.parsed.kernels or name.startswith((f"{tl}.atomic", f"{tl}.debug_b",
                                                               f"{tl}.inline", f"{tl}.dot_")):
                return f"{line} is in a loop that calls {name}, which may write"
        stores = self.parsed.calls(self.node, "store")
        if not stores:
            return ""
        launches = [launch for launch in self.parsed.launches
                    if launch.kernel == self.function.name]
        source = self._pointer(call.args[0])
        if not launches or not source:
            return f"{line} is in a loop that may store to what it loads"
        for launch in launches:
            bound = dict(zip(self.parsed.parameters(self.function), launch.call.args,
                             strict=False))
            bound.update({keyword.arg: keyword.value for keyword in launch.call.keywords
                          if keyword.arg})
            values = HostValues(launch.function) if launch.function is not None else None
            read = bound.get(source)
            for store in stores:
                target = bound.get(self._pointer(store.args[0]))
                if values is None or not isinstance(read, ast.Name) or not isinstance(
                        target, ast.Name) or target.id not in values.allocated \
                        or target.id == read.id or any(
                            use.lineno < launch.call.lineno for use in values.uses(target.id)):
                    return f"{line} is in a loop that may store to what it loads"
        return ""

    def _pointer(self, address: ast.expr) -> str:
        """Return the pointer parameter of an address, "" if it is ambiguous."""
        while isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add | ast.Sub):
            address = address.left
        if not isinstance(address, ast.Name):
            return ""
        values = [node.value for node in ast.walk(self.function) if isinstance(node, ast.Assign)
                  and ast.unparse(node.targets[0]) == address.id]
        if address.id in self.parsed.parameters(self.function):
            return address.id if not values else ""
        return self._pointer(values[0]) if len(values) == 1 else ""
