"""Infers the sizes, shapes and numbers of a kernel's task from the program that calls it."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.discovery.program import host_program, loop_values
from engine.discovery.program.host_expression import (
    DIM3,
    EVERYWHERE,
    MOST_STEPS,
    HostExpressions,
    UnknownValue,
    without_casts,
)
from engine.discovery.program.host_program import RETURNED, Frame, HostCall
from engine.discovery.project.device_sources import declared, plain_text, split_parts
from engine.discovery.project.sources import CFunction
from harness.compile.device_code import source_constants
from harness.formats import expression
from harness.tasks.target import DTYPE_BYTES, Arg, Launch

MOST_CALLS = MOST_CLASSES = 4
MOST_FILES = 3
"""Over how many files a call is followed."""
THREADS, SIDE = 256, 16
"""The threads of a block, or of each of its sides, where the text does not say them."""
_ENTRY = re.compile(r"\w+(?:\.\w+|\[\w+\])+")
"""An entry of a table or a struct, such as `cases[i].rows`."""
_MAIN = re.compile(r"\bmain\s*\(")
_POINTER = re.compile(r"^(?:thrust::raw_pointer_cast\()?(?:\([^()]*\)\s*)?&?\s*"
                      r"(?P<name>[A-Za-z_]\w*)\s*(?:\.data\(\)|(?:\[0\])+)?\)?$")


@dataclass(frozen=True)
class ProgramCall:
    """What the text of a program passes to a kernel.

    `shapes` are expressed in the kernel's sizes, `scalars` are its other numbers. `sizes` has, for
    each call whose text says all its sizes, their values by argument. `launch` is expressed in
    sizes, scalars and constants of the kernel's source, and in other names of the host, which
    config classes have to define; None for a plain call, or if it cannot be expressed.
    """

    launch: Launch | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)
    scalars: Mapping[str, str] = field(default_factory=dict)
    sizes: tuple[Mapping[str, int], ...] = ()

    def classes(self, names: Sequence[str]) -> list[str]:
        """Return the calls' config classes of the sizes that are named, as `--class` takes them.

        Without names it is one class, in which nothing varies.
        """
        shapes = list({tuple(each[name] for name in names): {name: each[name] for name in names}
                       for each in self.sizes}.values())
        return [f"{'main' if len(shapes) == 1 else 'x'.join(map(str, shape.values()))}: "
                + " ".join(f"{name}={value}" for name, value in shape.items())
                for shape in shapes]


def find(kernel: CFunction, texts: Sequence[str]) -> ProgramCall:
    """Return what a program passes to a kernel; the first text is the kernel's, others may call it.

    Shapes come from one call only, the first that shows any: those that it does not show are
    left out.
    """
    own, *others = texts
    constants = {name: value for text in reversed(texts)
                 for name, value in source_constants.find(text).items()}
    found = ProgramCall()
    for text in ("", *others, *_linked(kernel.name.partition("<")[0], others)):
        call = _of_program(kernel, own, text, constants)
        if call.sizes:
            return call
        found = max(found, call, key=lambda each: (
            len(each.shapes) + len(each.scalars) + (each.launch is not None)))
    return found


def _linked(name: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield each text with a `main`, with those in between that lead from it to a function."""
    linked, names = list[str](), {name}
    for _ in range(MOST_FILES):
        pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
        following = [text for text in texts if text not in linked
                     and not _MAIN.search(text) and pattern.search(text)]
        if not following:
            break
        linked += following
        names = {each.name for text in following for each in declared(plain_text(text))} or names
    if linked:
        yield from ("\n".join([*linked, text]) for text in texts if _MAIN.search(text))


def _of_program(kernel: CFunction, own: str, other: str,
                constants: Mapping[str, int]) -> ProgramCall:
    name = kernel.name.partition("<")[0]
    if other and not re.search(rf"\b(?:main|{re.escape(name)})\b", other):
        return ProgramCall()
    program = plain_text(f"{own}\n{other}")
    call_facts = ProgramCall()
    sizes: list[Mapping[str, int]] = []
    for host_call in itertools.islice(host_program.calls(kernel.name, program), MOST_CALLS):
        if len(host_call.values) < len(kernel.args) or bool(host_call.launch) != kernel.is_global:
            continue
        call = _Call(kernel, host_call, constants, program)
        call_facts = ProgramCall(launch=call_facts.launch or call.launch(),
                                 shapes=call_facts.shapes or call.shapes(),
                                 scalars=call_facts.scalars or call.scalars())
        for each in call.sizes():
            sizes += [each] if each not in sizes else []
    return replace(call_facts, sizes=tuple(sizes[:MOST_CLASSES]))


class _Call:
    """One call of a kernel, as the innermost function of the host makes it."""

    def __init__(self, kernel: CFunction, made: HostCall, constants: Mapping[str, int],
                 program: str) -> None:
        self._kernel, self._made, self._frame = kernel, made, made.frame
        self._constants, self._program = constants, program
        self._numbers = HostExpressions(constants=constants)
        self._values = dict(zip((arg.name for arg in kernel.args), made.values, strict=False))
        self._sizes = [arg.name for arg in kernel.args if isinstance(arg.value, str)]
        self._symbols: dict[tuple[int, str], str] = {}
        for size in self._sizes:
            self._name(size, self._values[size], made.frame)
        self._known = next(iter(self.sizes()), {})

    def _name(self, size: str, text: str, frame: Frame | None) -> None:
        """Record the names under which the host's functions pass on a size."""
        while frame is not None and (text := without_casts(text)).isidentifier():
            is_constant = text in self._constants and text not in frame.variables
            self._symbols.setdefault((EVERYWHERE if is_constant else id(frame), text), size)
            if text in frame.variables:
                text = frame.variables[text]
            else:
                text, frame = frame.passed.get(text, ""), frame.caller
        if frame is not None and _ENTRY.fullmatch(text := text.strip()):
            self._symbols.setdefault((id(frame), text), size)

    def sizes(self) -> list[dict[str, int]]:
        """Return the value of each size, once for each pass of a loop; [] if the text says not all.
        """
        try:
            return [self._sizes_in(self._frame)]
        except UnknownValue:
            frames = loop_values.passes(self._frame, self._numbers)
        passes = []
        for frame in frames:
            with contextlib.suppress(UnknownValue):
                passes.append(self._sizes_in(frame))
        return passes

    def _sizes_in(self, frame: Frame) -> dict[str, int]:
        found = {name: int(self._numbers.number(self._values[name], frame))
                 for name in self._sizes}
        if any(value <= 0 for value in found.values()):
            raise UnknownValue("a size of 0")
        return found

    def scalars(self) -> dict[str, str]:
        """Return the values of scalars that are no sizes, as far as the text gives them."""
        values = {}
        for arg in self._kernel.args:
            if arg.shape is None and arg.value is None:
                with contextlib.suppress(UnknownValue):
                    values[arg.name] = repr(
                        self._numbers.number(self._values[arg.name], self._frame))
        return values

    def launch(self) -> Launch | None:
        """Return the launch, None for a plain call or one that cannot be expressed.

        A number of threads that the text does not give becomes a constant with a default.
        """
        names = HostExpressions(constants=self._constants, symbols=self._symbols,
                                stay=frozenset(self._kernel.constants), keeps_unknown=True)
        try:
            grid, block, *rest = [self._axes(size, names) for size in self._made.launch]
        except (ArithmeticError, ValueError):  # UnknownValue is a ValueError
            return None
        known = {*self._kernel.constants, *(arg.name for arg in self._kernel.args)}
        used = re.findall(r"[A-Za-z_]\w*", " ".join(map(str, block)))
        free = [name for name in used if name not in known]
        launch = Launch(grid=grid, block=block, shared_bytes=rest[0][0] if rest else 0,
                        defaults=dict.fromkeys(free, THREADS if len(free) == 1 else SIDE))
        return None if launch.fault() else launch

    def _axes(self, text: str, names: HostExpressions) -> tuple[int | str, ...]:
        """Return the dimensions of a `dim3`, or the single one of a number."""
        frame: Frame | None = self._frame
        inner = text.strip()
        while frame is not None and inner.isidentifier() and inner not in names.stay:
            if inner in frame.variables:
                inner = frame.variables[inner].strip()
            else:
                inner, frame = frame.passed.get(inner, inner), frame.caller
        if frame is None or not (match := DIM3.match(inner)):
            return self._axis(text, self._frame, names),
        return tuple(self._axis(part, frame, names) for part in split_parts(match["sizes"]))

    def _axis(self, text: str, frame: Frame, names: HostExpressions) -> int | str:
        tree = names.resolve(text, frame)
        if isinstance(tree, ast.Constant) or not expression.names_in(tree):
            return int(expression.evaluate(tree, {}))
        return ast.unparse(tree)

    def shapes(self) -> dict[str, str]:
        """Return the shapes of the arrays whose allocation the text shows."""
        found: dict[str, str] = {}
        for arg in self._kernel.args:
            if arg.shape is not None:
                for names in (HostExpressions(constants=self._constants, symbols=self._symbols),
                              self._numbers):
                    with contextlib.suppress(UnknownValue):
                        found.setdefault(arg.name, self._shape(arg, names))
        return found

    def _shape(self, arg: Arg, names: HostExpressions) -> str:
        item = DTYPE_BYTES.get(arg.dtype, 1)
        text, frame = self._values[arg.name], self._frame
        for _ in range(MOST_STEPS):
            match = _POINTER.match(text.strip())
            if match is None:
                break
            name = match["name"]
            if length := host_program.allocated(name, frame.body):
                factors = list(_factors(names.resolve(length[0], frame, item)))
                return self._dims(factors, item if length[1] else 1)
            if name in frame.variables:
                text = frame.variables[name]
                if inner := host_program.returning(text, frame, self._program):
                    text, frame = RETURNED, inner
            elif frame.caller is not None:
                text, frame = frame.passed.get(name, name), frame.caller
            else:
                break
        raise UnknownValue(arg.name)

    def _dims(self, factors: Sequence[ast.expr], item: int) -> str:
        """Return dimensions whose product, times `item` bytes, is the product of the factors."""
        dims: list[str | int] = []
        for node in factors:
            value = node.value if isinstance(node, ast.Constant) else ast.unparse(node)
            if isinstance(value, int) and dims and isinstance(dims[-1], int):
                dims[-1] *= value
            else:
                dims.append(value if isinstance(value, int) else str(value))
        last = next((n for n in reversed(range(len(dims))) if dims[n] == item or
                     (isinstance(number := dims[n], int) and number % item == 0)), None)
        if last is None and item > 1:
            raise UnknownValue("no whole number of elements")
        if last is not None and item > 1:
            dims[last] = int(dims[last]) // item
        dims = [dim for dim in dims if dim != 1] or [1]
        if any(len(str(dim)) > expression.MOST_CHARACTERS for dim in dims):
            raise UnknownValue("too long")
        return ", ".join(self._size_of(dim) if isinstance(dim, int) else dim for dim in dims)

    def _size_of(self, number: int) -> str:
        """Return a number as the product of as few sizes as possible, if only one product fits.

        Otherwise return the number.
        """
        for count in (1, 2, 3):
            products = [names for names in itertools.combinations_with_replacement(
                self._known, count) if math.prod(map(self._known.__getitem__, names)) == number]
            if products:
                return ", ".join(products[0]) if len(products) == 1 else str(number)
        return str(number)


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node
