"""`triton-unmasked-loops`: only a loop's last, partial step is masked; all before are whole.

`for k in range(0, K, BLOCK)` masks its loads by `k + arange(0, BLOCK) < K`, or `for k in range(0,
cdiv(K, BLOCK))` by `arange(0, BLOCK) < K - k * BLOCK`. Such a comparison is true in each step that
ends before K, so a first loop omits it and a second one, of at most one step, keeps it.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from engine.transformations.transformation import (
    Replacement,
    Transformation,
    Transformed,
    first_places,
    replaced,
)
from engine.transformations.triton.index_sums import (
    LANES,
    IndexSums,
    is_new_dimension,
    minus,
    plus,
    text,
)
from engine.transformations.triton.parsed_triton import ParsedTriton, loaded, names, stored

_JUMPS = (ast.Break, ast.Continue, ast.Return)


class UnmaskedLoops(Transformation):
    name = "triton-unmasked-loops"
    aim = "loops without masks but for a last, partial step, so that loads are whole vectors"

    def apply(self, source: str) -> Transformed:
        parsed, why = ParsedTriton(source), "no loop of a kernel goes over blocks of one size"
        loops = list[_StepLoop]()
        for function in parsed.kernels.values():
            for node, steps in parsed.range_loops(function):
                loop = _step_loop(parsed, function, node, steps)
                if loop is not None:
                    fault = loop.fault()
                    why = fault or why
                    loops += [] if fault else [loop]
        nodes = [loop.node for loop in loops]
        inner = first_places((loop for loop in loops if not any(
            node is not loop.node and node in ast.walk(loop.node) for node in nodes)), why)
        for loop in inner:
            parsed.edit(loop.split(parsed.free("whole")))
        return parsed.transformed("masks only in the last step of the loops",
                                  [loop.node.lineno for loop in inner])


@dataclass(kw_only=True)
class _StepLoop:
    """A loop over blocks of a size: `begin`, `size` and `block` are expressions of the source.

    With `counts_blocks` its variable is the block's number, else the block's first index.
    """

    parsed: ParsedTriton
    function: ast.FunctionDef
    node: ast.For
    begin: ast.expr
    bound: ast.expr
    size: ast.expr
    block: ast.expr
    counts_blocks: bool

    def __post_init__(self) -> None:
        parameters = {*self.parsed.parameters(self.function)}
        count = Counter(stored(self.function))
        self.variable = ast.unparse(self.node.target)
        self._in_body = Counter(name for part in self.node.body for name in stored(part))
        sums = IndexSums(self.parsed, scalars=parameters | {self.variable})
        for before in self.function.body:
            if isinstance(before, ast.Assign) and isinstance(before.targets[0], ast.Name) \
                    and all(count[name] <= (name not in parameters) for name in names(before)):
                sums.set(before.targets[0].id, before.value)
        for name in self._in_body:
            sums.forget(name, self.node.lineno)
        self._bound = sums.of(self.size)
        self._length = text(sums.of(self.block))
        step = ast.BinOp(self.node.target, ast.Mult(), self.block) if self.counts_blocks \
            else self.node.target
        self._first = sums.of(step)
        self._values: dict[str, list[ast.expr]] = defaultdict(list)
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign | ast.AugAssign):
                for name in dict.fromkeys(stored(node)):
                    self._values[name].append(node.value)
        self._masks: dict[str, ast.expr] = {}
        self._is_true: dict[ast.Compare, str] = {}
        for statement in self.node.body:
            self._record_true(sums, statement)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) \
                    and self._in_body[statement.targets[0].id] == 1:
                sums.set(statement.targets[0].id, statement.value)
                if all(use.lineno > statement.lineno for use in ast.walk(self.node)
                       if isinstance(use, ast.Name) and isinstance(use.ctx, ast.Load)
                       and use.id == statement.targets[0].id):  # not the value of the step before
                    self._masks[statement.targets[0].id] = statement.value

    def _record_true(self, sums: IndexSums, statement: ast.stmt) -> None:
        """Record the comparisons of a statement that are true in all steps before the last one."""
        if isinstance(statement, ast.For | ast.If | ast.While | ast.With):
            return  # names inside may have other values
        for node in ast.walk(statement):
            if not isinstance(node, ast.Compare) or len(node.ops) != 1:
                continue
            sides = [node.left, node.comparators[0]]
            if isinstance(node.ops[0], ast.Gt):
                sides.reverse()
            elif not isinstance(node.ops[0], ast.Lt):
                continue
            lane = plus(minus(minus(sums.of(sides[0]), sums.of(sides[1])), self._first),
                        self._bound)
            (factors, count), *others = lane.items() or [((), 0)]
            head = f"{LANES}{self._length})"
            if not others and count == 1 and len(factors) == 1 and factors[0].startswith(head):
                block, tl = self.parsed.text(self.block), self.parsed.language
                self._is_true[node] = f"({tl}.arange(0, {block}){factors[0][len(head):]} < {block})"

    def fault(self) -> str:
        """Return why the loop cannot be split, "" if it can."""
        line = f"the loop on line {self.node.lineno}"
        if not self._is_true:
            return f"{line} has no mask that is false only in its last step"
        if self.node.orelse or any(isinstance(part, _JUMPS) for part in ast.walk(self.node)):
            return f"{line} may end early"
        if any(self._continues(part) for part in ast.walk(self.function)
               if isinstance(part, ast.For)):
            return f"{line} is the remainder of a loop that is already split"
        heads = (self.begin, self.bound, self.size, self.block)
        if self.variable in self._in_body or any(
                name in self._in_body for head in heads for name in names(head)):
            return f"{line} changes its own bounds"
        outside = {id(part) for node in ast.walk(self.function) if isinstance(node, ast.For)
                   and ast.unparse(node.target) == self.variable for part in ast.walk(node)}
        if any(isinstance(part, ast.Name) and part.id == self.variable and id(part) not in outside
               for part in ast.walk(self.function)):
            return f"{line} has a counter that is used after it"
        return ""

    def _continues(self, other: ast.For) -> bool:
        """Return whether this loop continues where another one ends."""
        return isinstance(other.iter, ast.Call) and len(other.iter.args) > 1 and isinstance(
            self.begin, ast.Name) and ast.unparse(other.iter.args[1]) == self.begin.id

    def split(self, whole: str) -> Replacement:
        """Return the loop as two: whole blocks without masks, then the rest as it was."""
        parsed, node = self.parsed, self.node
        begin, end = parsed.at(node.lineno, 0), parsed.span(node)[1]
        indent = parsed.source[begin:parsed.span(node)[0]]
        size, block = (parsed.text(expression) for expression in (self.size, self.block))
        first = ast.unparse(self.begin)  # `begin` may be a 0 that is not in the source
        size = size if size.isidentifier() else f"({size})"
        block = block if block.isidentifier() or block.isdigit() else f"({block})"
        if first != "0":
            size = f"({size} - ({first}))"
        is_size = size in parsed.parameters(self.function) and size not in stored(self.function)
        if not is_size:  # a size is never negative
            size = f"{parsed.language}.maximum({size}, 0)"
        value = f"{size} // {block}" + ("" if self.counts_blocks else f" * {block}")
        value = value if first == "0" else f"{first} + {value}"
        assert isinstance(node.iter, ast.Call)
        head = slice(parsed.span(node.iter)[0], parsed.at(node.body[0].lineno, 0))
        main = replaced(parsed.source, [Replacement(*parsed.span(self.bound), whole),
                                        *self._unmasked()], begin, end)
        colon = parsed.source[parsed.span(node.iter)[1]:head.stop]
        rest = ", ".join([whole, parsed.text(self.bound),
                          *([] if self.counts_blocks else [parsed.text(self.block)]),
                          "num_stages=1"])
        tail = (f"{parsed.source[begin:head.start]}{parsed.language}.range({rest}){colon}"
                f"{parsed.source[head.stop:end]}")
        return Replacement(begin, end, f"{indent}{whole} = {value}\n{main}\n{tail}")

    def _unmasked(self) -> Iterator[Replacement]:
        """Yield the edits that remove masks, and parts of masks, that are true in whole blocks."""
        used: Counter[str] = Counter()
        for name, place in (("load", 1), ("store", 2)):
            for call in self.parsed.calls(self.node, name):
                mask = self.parsed.argument(call, "mask", place)
                others = [word for word in call.keywords if word.arg not in ("mask", "other")]
                if mask is None or not self._has_block(call.args[0]):
                    continue
                if self._is_whole(mask):
                    used.update(names(mask))
                    kept = list[ast.expr | ast.keyword]([*call.args[:place], *others])
                    written = ", ".join(map(self.parsed.text, kept))
                    yield Replacement(*self.parsed.span(call),
                                      f"{self.parsed.text(call.func)}({written})")
                elif isinstance(mask, ast.BinOp):
                    yield Replacement(*self.parsed.span(mask), self._without_true_parts(mask))
        for statement in self.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) \
                    and self._is_whole(statement.value) \
                    and self.parsed.has_own_lines(statement, statement) \
                    and used[statement.targets[0].id] == loaded(self.node).count(
                        statement.targets[0].id):
                yield Replacement(self.parsed.at(statement.lineno, 0),
                                  self.parsed.at((statement.end_lineno or 0) + 1, 0), "")
        for node, always in self._is_true.items():
            yield Replacement(*self.parsed.span(node), always)

    def _is_whole(self, mask: ast.expr) -> bool:
        """Return whether a mask is true in all steps before the last one."""
        if isinstance(mask, ast.Name):
            return mask.id in self._masks and self._is_whole(self._masks[mask.id])
        if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
            return self._is_whole(mask.left) and self._is_whole(mask.right)
        if isinstance(mask, ast.Subscript) and is_new_dimension(mask.slice):
            return self._is_whole(mask.value)
        return mask in self._is_true

    def _without_true_parts(self, mask: ast.expr) -> str:
        """Return a mask without the parts that are true in whole blocks."""
        if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
            return " & ".join(f"({self._without_true_parts(side)})"
                              if isinstance(side, ast.Compare) else self._without_true_parts(side)
                              for side in (mask.left, mask.right) if not self._is_whole(side))
        return self.parsed.text(mask) if isinstance(mask, ast.Name | ast.Compare) \
            else f"({self.parsed.text(mask)})"

    def _has_block(self, pointer: ast.expr) -> bool:
        """Return whether a pointer has the block's lanes, so loads keep their shape unmasked."""
        left, seen = [pointer], set[str]()
        while left:
            node = left.pop()
            if any(len(call.args) == 2 and ast.unparse(call.args[1]) == ast.unparse(self.block)
                   for call in self.parsed.calls(node, "arange")):
                return True
            for name in set(names(node)) - seen:
                seen.add(name)
                left += self._values[name]
        return False


def _step_loop(parsed: ParsedTriton, function: ast.FunctionDef, node: ast.For,
               steps: ast.Call) -> _StepLoop | None:
    """Return a range loop as a loop over blocks of one size, None if it is not one."""
    if not isinstance(node.target, ast.Name) or node.body[0].lineno == node.lineno:
        return None
    arguments = steps.args
    zero: ast.expr = ast.copy_location(ast.Constant(0), node.iter)
    begin, bound = (zero, arguments[0]) if len(arguments) == 1 else arguments[:2]
    is_zero = isinstance(begin, ast.Constant) and begin.value == 0
    if len(arguments) == 3:
        return _StepLoop(parsed=parsed, function=function, node=node, begin=begin, bound=bound,
                         size=bound, block=arguments[2], counts_blocks=False)
    count: ast.expr | None = bound
    if isinstance(count, ast.Name):
        count = parsed.single_values(function).get(count.id)
        if count is not None and set(stored(function)).intersection(names(count)):
            return None
    if is_zero and count is not None and parsed.is_call(count, "cdiv") \
            and isinstance(count, ast.Call) and len(count.args) == 2:
        return _StepLoop(parsed=parsed, function=function, node=node, begin=begin, bound=bound,
                         size=count.args[0], block=count.args[1], counts_blocks=True)
    return None
