"""Find possible knobs in a C, CUDA or HIP source: constants, template arguments, launch sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_IGNORED = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_CONSTANT = re.compile(
    r"^[ \t]*(?:#[ \t]*define[ \t]+(\w+)[ \t]+|(?:static[ \t]+)?(?:constexpr|const)[ \t]+"
    r"(?:unsigned[ \t]+int|int|unsigned|size_t|u?int(?:32|64)_t|auto)[ \t]+(\w+)[ \t]*=[ \t]*)"
    r"(\d+)[ \t]*;?(?=[ \t]*$)", re.M)
_BOUNDS = re.compile(r"__launch_bounds__\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ANY_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*\)")
_KERNEL = re.compile(r"\s*(?:[A-Za-z_][\w*&\s]*?\s)?\*?(\w+)\s*\(")
_TEMPLATE = re.compile(r"template\s*<([^{};]*?)>[^{};()]*?\b(\w+)\s*\(")
_LAUNCH = re.compile(r"\b(\w+)\s*<([^<>;(){}]*)>\s*<<<(.*?)>>>", re.DOTALL)
_ANY_LAUNCH = re.compile(r"\b(\w+)\s*(?:<[^<>;(){}]*>)?\s*<<<(.*?)>>>", re.DOTALL)
_HEAD = re.compile(r"(?:[ \t]*(?:#[ \t]*(?:include|pragma)[^\n]*)?\n)*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WHOLE = re.compile(r"unsigned|int|size_t|u?int\d+_t|auto")
MOST_THREADS, WARP = 1024, 32
BLOCK = "block"
"""The `name` of a NumberPlace for the threads in a launch's block."""


@dataclass(frozen=True, kw_only=True)
class NumberPlace:
    """A number in a source that could become a knob; places are (begin, end) in characters.

    `at` is the number's place, for a constant the place after it. `tied` are other places of the
    number, `less_one` places of the number minus one, which must change with it. The knob of a
    constant has the constant's name.
    """

    kernel: str
    name: str
    value: int
    why: str
    at: tuple[int, int]
    tied: tuple[tuple[int, int], ...] = ()
    less_one: tuple[tuple[int, int], ...] = ()
    is_constant: bool = False
    is_of_launch: bool = False
    """Whether it is a constant between `<<<` and `>>>`."""
    is_of_block: bool = False
    """Whether it is a constant in the size of a launch's block."""
    is_bound: bool = False

    @property
    def is_block(self) -> bool:
        """Whether it is the number of threads in a launch's block, and not a constant."""
        return self.name == BLOCK and not self.is_constant

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices of a launch bound, a block size or a launch's constant; () for others.

        No launch bound gets fewer threads than it has, so that present launches stay legal.
        """
        if self.is_block or (self.is_of_launch and WARP <= self.value <= MOST_THREADS):
            return threads(self.value)
        if not self.is_bound:
            return ()
        return tuple(sorted({1, 2, 3, 4, 8, self.value} if self.name == "blocks_per_sm" else {
            self.value, *(size for size in (128, 256, 512, MOST_THREADS) if size > self.value)}))


def threads(value: int) -> tuple[int, ...]:
    """Return the usual numbers of threads in a block, and the present one."""
    return tuple(sorted({WARP, 64, 128, 256, 512, MOST_THREADS, value}))


def find(source: str) -> Iterator[NumberPlace]:
    """Yield the numbers of a source that could be knobs."""
    text = _IGNORED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    launches = " ".join(match[2] for match in _ANY_LAUNCH.finditer(text))
    blocks = _block_sizes(text)
    for match in _CONSTANT.finditer(text):
        name = match[1] or match[2]
        yield NumberPlace(kernel="", name=name, value=int(match[3]), why="a constant",
                          at=(match.end(), match.end()), is_constant=True,
                          is_of_launch=re.search(rf"\b{name}\b", launches) is not None,
                          is_of_block=name in blocks and int(match[3]) <= MOST_THREADS)
    bounds = [(head[1], match) for match in _BOUNDS.finditer(text)
              if (head := _KERNEL.match(text, match.end()))]
    parameters = {match[2]: match[1].split(",") for match in _TEMPLATE.finditer(
        _ANY_BOUNDS.sub(lambda match: " " * len(match[0]), text))}
    taken, launched = set[tuple[int, int]](), list[tuple[int, int]]()
    for match in _LAUNCH.finditer(text):
        kernel, sizes = match[1], match.span(3)
        for index, (begin, end) in enumerate(_parts(text, *match.span(2))):
            known = parameters.get(kernel, [])
            kind, _, name = known[index].strip().rpartition(" ") if index < len(known) else \
                ("int", "", f"argument_{index + 1}")
            if not text[begin:end].isdigit() or not _WHOLE.search(kind) or not int(text[begin:end]):
                continue
            value = int(text[begin:end])
            of_bounds = [bound.span(1) for bound_kernel, bound in bounds
                         if bound_kernel == kernel and int(bound[1]) == value]
            taken.update(of_bounds)
            launched.append(sizes)
            yield NumberPlace(
                kernel=kernel, name=name, value=value, at=(begin, end),
                why=f"template argument of {kernel}",
                tied=(*_numbers(text, sizes, value), *of_bounds),
                less_one=tuple(_numbers(text, sizes, value - 1)) if value > 2 else ())
    for number in _blocks(text):
        if number.at not in taken and not any(
                begin <= number.at[0] < end for begin, end in launched):
            equal = {bound.span(1) for kernel, bound in bounds
                     if kernel == number.kernel and int(bound[1]) == number.value}
            taken.update(equal)
            yield replace(number, tied=(*number.tied, *sorted(equal)))
    for kernel, bound in bounds:
        for group, name in ((1, "launch_bounds"), (2, "blocks_per_sm")):
            if bound[group] and bound.span(group) not in taken and int(bound[group]):
                yield NumberPlace(kernel=kernel, name=name, value=int(bound[group]),
                                  why=f"launch bounds of {kernel}", at=bound.span(group),
                                  is_bound=True)


def block_of(source: str, kernel: str) -> NumberPlace | None:
    """Return the number of threads with which a source launches a kernel, as `find` yields it."""
    return next((number for number in find(source)
                 if (number.kernel, number.name) == (kernel, BLOCK)), None)


def is_launched(source: str, kernel: str) -> bool:
    """Return whether a source launches a kernel."""
    return any(match[1] == kernel for match in _ANY_LAUNCH.finditer(_IGNORED.sub(" ", source)))


def _block_sizes(text: str) -> set[str]:
    """Return the names in the sizes of launched blocks, and in the variables that are such sizes.
    """
    names: set[str] = set()
    for match in _ANY_LAUNCH.finditer(text):
        parts = [text[begin:end] for begin, end in _parts(text, *match.span(2))]
        for name in _NAME.findall(" ".join(parts[1:2])):
            variables = re.findall(rf"\b{name}\s*(?:=|[({{])([^;\n]*);", text)
            names |= {name, *_NAME.findall(variables[0] if len(variables) == 1 else "")}
    return names


def _blocks(text: str) -> Iterator[NumberPlace]:
    """Yield the block size of each kernel with one launch: a number, or a variable's only value."""
    sites = list(_ANY_LAUNCH.finditer(text))
    for match in sites:
        parts = list(_parts(text, *match.span(2)))
        if len(parts) < 2 or sum(other[1] == match[1] for other in sites) > 1:
            continue
        begin, end = parts[1]
        sizes = match.span(2)
        if not text[begin:end].isdigit():
            name = re.escape(text[begin:end])
            values = [value.span(1) for value in re.finditer(
                rf"\b{name}\s*(?:=\s*(?:dim3\s*[({{]\s*)?|[({{]\s*)(\w+)", text)]
            if len(values) != 1 or not text[slice(*values[0])].isdigit():
                continue
            (begin, end), sizes = values[0], (0, 0)
        number = int(text[begin:end])
        if WARP <= number <= MOST_THREADS:
            yield NumberPlace(
                kernel=match[1], name=BLOCK, value=number, at=(begin, end),
                why=f"threads of a block of {match[1]}",
                tied=tuple(place for place in _numbers(text, sizes, number)
                           if place != (begin, end)),
                less_one=tuple(_numbers(text, sizes, number - 1)))


def after_includes(source: str) -> int:
    """Return how many characters a source's leading comments and includes take; 0 if no include."""
    text = _IGNORED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    head = _HEAD.match(text)
    return head.end() if head and "#" in head[0] else 0


def _parts(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the places of comma-separated parts, without the spaces around them."""
    for part in re.finditer(r"[^,]+", text[begin:end]):
        word = part[0]
        yield (begin + part.start() + len(word) - len(word.lstrip()),
               begin + part.end() - len(word) + len(word.rstrip()))


def _numbers(text: str, span: tuple[int, int], value: int) -> Iterator[tuple[int, int]]:
    """Yield the places in a span at which `value` is written."""
    for match in re.finditer(rf"(?<![\w.]){value}(?![\w.])", text[slice(*span)]):
        yield span[0] + match.start(), span[0] + match.end()
