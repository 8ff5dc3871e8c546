"""`triton-fused-launches`: two launches in a row on the same blocks become one kernel.

Each program of the second launch reads only what the first launch's program of the same number has
written. The value stays in registers, rounded to the tensor's type, and is stored only if it is
used later and the second kernel does not overwrite it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from engine.transformations.transformation import (
    MOST_PLACES,
    DoesNotApply,
    Transformation,
    Transformed,
)
from engine.transformations.triton.fusion.fused_source import FusedSource, names_in
from engine.transformations.triton.fusion.inlined_wrappers import inlined
from engine.transformations.triton.fusion.launched_kernel import (
    LaunchedKernel,
    MemoryAccess,
)
from engine.transformations.triton.host_values import (
    HostValues,
    is_quiet,
    is_quiet_value,
)
from engine.transformations.triton.parsed_triton import KernelLaunch, ParsedTriton, names, stored
from engine.transformations.triton.persistent_grid import total


class FusedLaunches(Transformation):
    name = "triton-fused-launches"
    aim = "consecutive launches over the same blocks as one kernel, which keeps intermediate " \
          "values in registers"

    def apply(self, source: str) -> Transformed:
        fused = list[str]()
        while len(fused) < MOST_PLACES:
            try:
                source, names = _next(source)
            except DoesNotApply:
                if not fused:
                    raise
                break
            fused.append(names)
        return Transformed(source=source, what=f"one launch of {'; of '.join(fused)}")


def _next(source: str) -> tuple[str, str]:
    """Return the result of `_fused` for the source, else for it with launchers inlined."""
    try:
        return _fused(source)
    except DoesNotApply as reason:
        why = reason
    for other in inlined(source):
        try:
            return _fused(other)
        except DoesNotApply as reason:
            why = reason
    raise why


def _fused(source: str) -> tuple[str, str]:
    """Return the source with the first fusible pair of launches fused. Raises DoesNotApply."""
    parsed = ParsedTriton(source)
    why = "no function launches two kernels, one directly after the other"
    for first, second, between in _pairs(parsed):
        assert first.function is not None
        values = HostValues(first.function)
        pair = _Pair(parsed=parsed, values=values, between=between,
                     first=LaunchedKernel(parsed, first, values),
                     second=LaunchedKernel(parsed, second, values))
        if not (why := pair.fault()):
            names = f"{first.kernel} and {second.kernel}, line {first.call.lineno}"
            return FusedSource(parsed=parsed, values=values, first=pair.first, second=pair.second,
                               passed=pair.passed).written(), names
    raise DoesNotApply(why)


def _pairs(parsed: ParsedTriton) -> Iterator[tuple[KernelLaunch, KernelLaunch, list[ast.stmt]]]:
    """Yield consecutive launches in one statement list outside loops, and what is between them."""
    of_call = {id(launch.call): launch for launch in parsed.launches}
    in_loops = {id(part) for loop in ast.walk(parsed.tree)
                if isinstance(loop, ast.For | ast.While | ast.AsyncFor) for part in ast.walk(loop)}
    for node in ast.walk(parsed.tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            last: tuple[int, KernelLaunch] | None = None
            for at, statement in enumerate(body if isinstance(body, list) else ()):
                launch = of_call.get(id(statement.value)) if isinstance(statement, ast.Expr) \
                    and id(statement) not in in_loops else None
                if launch is not None and launch.function is not None:
                    if last is not None:
                        yield last[1], launch, body[last[0] + 1:at]  # type: ignore[index]
                    last = at, launch


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Two launches of one function, and the statements between them."""

    parsed: ParsedTriton
    values: HostValues
    first: LaunchedKernel
    second: LaunchedKernel
    between: list[ast.stmt]

    def fault(self) -> str:
        """Return why the launches cannot become one, "" if they can."""
        first, other = self.first, self.second
        if first.fault or other.fault:
            return first.fault or other.fault
        grids = [self._grid(launched.launch) for launched in (first, other)]
        if not grids[0] or grids[0] != grids[1] or first.options != other.options:
            return f"{first.launch.kernel} and {other.launch.kernel} " \
                   "have different grids or options"
        if not all(map(is_quiet_value, first.bound.values())) or not all(
                map(is_quiet_value, other.bound.values())):
            return f"an argument of {first.launch.kernel} or {other.launch.kernel} is a call"
        launch_names = {*names(first.launch.call), *names(
            self.values.value(ast.unparse(first.launch.grid)) or first.launch.grid)}
        decorators = {ast.unparse(side.function.decorator_list[0]) for side in (first, other)}
        if first.statements[0].col_offset != other.statements[0].col_offset \
                or len(decorators) > 1 or not self.parsed.has_own_lines(
                first.launch.call, first.launch.call):
            return "the kernels differ in decorator or indentation, or a launch shares its line"
        if not all(map(is_quiet, self.between)) or any(
                launch_names.intersection(stored(statement)) for statement in self.between):
            return "the statements between the launches may have effects, line " \
                   f"{self.between[0].lineno}"
        return self._memory_fault() or self._name_fault()

    def _grid(self, launch: KernelLaunch) -> str:
        grid: ast.expr = launch.grid
        if text := total(self.parsed, launch):
            grid = ast.parse(text, mode="eval").body
        elif isinstance(grid, ast.Name):
            grid = self.values.value(grid.id) or grid
        is_known = bool(text) or isinstance(grid, ast.Tuple)
        return ast.unparse(_Divisions().visit(ast.parse(self.values.text(grid)))) \
            if is_known else ""

    def _memory_fault(self) -> str:
        """Return why the programs' order of reads and writes matters, "" if it does not."""
        first, other = self.first, self.second
        written = {store.tensor for store in first.accesses if store.is_store}
        also = {store.tensor for store in other.accesses if store.is_store}
        if "" in written | also:
            return "a kernel writes to memory that the function has not allocated and that may " \
                   "overlap what the other one reads"
        if read := [name for access in first.accesses for name in also if access.mentions(name)
                    and not (access.is_store and access.tensor == name)]:
            return f"the first kernel reads {read[0]}, which the second one writes: one kernel's " \
                   "programs do not wait for each other's reads"
        for name in written | also:
            before = [use for use in self.values.uses(name)
                      if use.lineno <= (other.launch.call.end_lineno or 0)
                      and use not in first.launch.call.args and use not in other.launch.call.args
                      and use not in [keyword.value for launched in (first, other)
                                      for keyword in launched.launch.call.keywords]]
            if before:
                return f"{name} is used before the second launch, line {before[0].lineno}"
        if not self.passed:
            return "the second kernel reads nothing that the first one writes"
        for name in written:
            for access in other.accesses:
                if access.mentions(name) and (why := self._access_fault(name, access)):
                    return why
        return ""

    def _access_fault(self, name: str, access: MemoryAccess) -> str:
        """Return why a value that the first kernel stores is not the one that the second loads."""
        where = f"line {access.call.lineno} of {self.second.launch.kernel}"
        stores = [store for store in self.first.accesses if store.is_store and store.tensor == name]
        store = stores[0]
        if len(stores) != 1 or access.tensor != name or any(
                use.mentions(name) for use in self.first.accesses if use is not store):
            return f"{where}: {name} is written more than once, or controls what is read"
        if "program_id(" not in store.address:
            return f"{where}: all programs write to the same address of {name}"
        if access.address != store.address or access.mask != store.mask:
            of_stride = ".stride(" in access.address + store.address
            return f"{where}: its address in {name} or its mask differs from the first kernel's" + (
                "; strides of `empty_like(x)` are those of x where the function asserts "
                "`x.is_contiguous()` before" if of_stride else "")
        if store.stored != store.blocks:
            return f"{where}: the shape of the value that is stored in {name} is not known"
        if access.is_store:
            return ""
        if any(later.is_store and later.tensor == name and _begins_after(access.call, later.call)
               for later in self.second.accesses):
            return f"{where}: {name} is read again after it was overwritten"
        other = self.parsed.argument(access.call, "other", 2)
        if access.mask and not self.second.is_lanewise and other is None:
            return f"{where}: masked-off lanes of {name} are undefined, and a reduction reads them"
        if other is not None and not _is_number(other):
            return f"{where}: `other` is not a number"
        if any(keyword.arg == "volatile" for keyword in access.call.keywords):
            return f"{where}: a volatile load"
        return ""

    def _name_fault(self) -> str:
        first, other = self.first.function, self.second.function
        names_of_second = {*self.parsed.parameters(other), *stored(other)}
        hidden = (names_in(other) - names_of_second) & {
            *self.parsed.parameters(first), *stored(first)}
        return f"the kernels use the same name differently: {', '.join(sorted(hidden))}" \
            if hidden else ""

    @property
    def passed(self) -> dict[str, MemoryAccess]:
        """The stores of the first kernel that the second one loads, by tensor."""
        return {store.tensor: store for store in self.first.accesses if store.is_store and any(
            access.tensor == store.tensor for access in self.second.accesses)}


class _Divisions(ast.NodeTransformer):
    """Replaces `triton.cdiv(n, size)` by its formula."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) != "triton.cdiv" or len(node.args) != 2:
            return node
        n, size = map(ast.unparse, node.args)
        return ast.parse(f"(({n}) + ({size}) - 1) // ({size})", mode="eval").body


def _begins_after(node: ast.Call, other: ast.Call) -> bool:
    """Return whether a call begins where another one has ended."""
    return (node.lineno, node.col_offset) >= (other.end_lineno or 0, other.end_col_offset or 0)


def _is_number(node: ast.expr) -> bool:
    text = ast.unparse(node).removeprefix("-")
    return isinstance(node, ast.Constant) or text.replace(".", "").isdigit() or text in (
        "float('inf')", "float('-inf')")
