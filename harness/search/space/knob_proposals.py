"""Propose knobs for a source that declares none, declare them in it, and inline their values.

Triton: whole numbers that a launch passes (num_warps, BLOCK_*), directly or by a variable, and
defaults of tl.constexpr parameters. A computed value gets a knob that overrides it unless it is 0.
C, CUDA, HIP: constants, a block's threads, numbers in template arguments and `__launch_bounds__`.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from harness.search.space import c_knobs, python_entry, triton_autotune, triton_names

SIZES = re.compile(
    r"(?i)^(block|tile|group|split|chunk|unroll|warps|threads|lanes|stages|b[mnkdthv]$)"
    r"|_(block|tile|size|threads|warps|unroll)$")
FIXED = re.compile(r"(?i)warp_?size|batch_?size")  # sizes of the hardware and of the problem
USUAL = {"num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3, 4, 5)}
OVERRIDES = (64, 128, 256, 512, 1024, 2048, 4096)
TILES = (16, 32, 64, 128, 256)
"""Sizes of a matrix product's tiles, in place of OVERRIDES: compiling larger ones takes minutes."""
MOST_ELEMENTS = 4096  # of a block, where a launch has one size and its kernel no product
MARK = "declared by kopt"
NEW_MARK = "inserted by kopt"
LAUNCH_MARK = "inserted by kopt, for the task's launch too"
MOST = 8
_DECLARED = re.compile(
    rf"^(?P<name>\w+) = (?P<value>\w+)  # kopt: knob [^\n]*{MARK}[^\n]*\n", re.M)
_C_DECLARED = re.compile(rf"  // kopt: knob [^\n]*{MARK}[^\n]*")
_START = re.compile(rf"(?://|#) kopt: start [^\n]*\({MARK}\)\n")
_C_OF_LAUNCH = re.compile(rf"(?<=\d)  // kopt: knob [^\n]*{re.escape(LAUNCH_MARK)}$", re.M)
_C_NEW = re.compile(rf"^#define (\w+) (\d+)  // kopt: knob [^\n]*{NEW_MARK}\n", re.M)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A replacement for some bytes of the source."""

    begin: int
    end: int
    written: str


@dataclass(frozen=True, kw_only=True)
class KnobProposal:
    """A knob that could be declared: the present value, the choices, the edits that declare it."""

    name: str
    line: int
    value: int
    choices: tuple[int, ...]
    why: str
    edits: tuple[Edit, ...] = ()
    is_new: bool = True
    """Whether its name is one that kopt inserts."""
    is_of_launch: bool = False
    """Whether the task's launch uses it; `inlined` then leaves its constant in the source."""

    @property
    def begin(self) -> int:
        return self.edits[0].begin

    def renamed(self, name: str) -> KnobProposal:
        return replace(self, name=name, edits=tuple(replace(
            edit, written=edit.written.replace(self.name, name)) for edit in self.edits))


def propose(source: str, language: str,
            launch: Mapping[str, int] | None = None, entry: str = "") -> tuple[KnobProposal, ...]:
    """Return at most MOST proposals; none if knobs are declared or a Triton source is not Python.

    Functions of a Triton source that its `entry`, if known, does not need get none.
    `launch`: the constants in the task's launch that the source may define, with their values;
    None if the task has no launch: the threads of a block are then those of the source's launches.
    """
    if "kopt: knob" in source:
        return ()
    if language in ("triton", "python"):
        try:
            hidden = python_entry.hidden_lines(source, entry)
            candidates = [each for each in _triton_proposals(source) if each.line not in hidden]
        except (SyntaxError, ValueError, RecursionError):
            return ()
    else:
        candidates = list(_of_c(source, launch))
    unique = {each.begin: each for each in reversed(candidates)}
    names, proposals = dict[str, int](), list[KnobProposal]()
    for each in sorted(unique.values(), key=lambda each: each.begin)[:MOST]:
        names[each.name] = number = names.get(each.name, 0) + 1
        proposals.append(each if number == 1 else each.renamed(f"{each.name}_{number}"))
    return tuple(proposals)


def declare(source: str, proposals: Sequence[KnobProposal], language: str) -> str:
    """Return the source with knobs declared, each with its present value."""
    data = source.encode()
    edits = {edit.begin: edit for each in proposals for edit in each.edits}  # one edit per place
    if language not in ("triton", "python"):
        at = len(source[:c_knobs.after_includes(source)].encode())
        new = "".join(f"#define {each.name} {each.value}  " + _knob_comment(
            "//", each, LAUNCH_MARK if each.is_of_launch else NEW_MARK) + "\n"
            for each in proposals if each.is_new)
        edits[at] = Edit(begin=at, end=at, written=new) if at not in edits else replace(
            edits[at], written=new + edits[at].written)
    for _, edit in sorted(edits.items(), reverse=True):
        data = data[:edit.begin] + edit.written.encode() + data[edit.end:]
    if language not in ("triton", "python"):
        return data.decode()
    lines = [f"{each.name} = {each.value}  {_knob_comment('#', each)}\n" for each in proposals]
    at = _after_imports(source)
    text = triton_autotune.lines_of(data.decode())
    return "".join([*text[:at], *(["\n"] if at else []), *lines, *text[at:]])


def patch(source: str, declared: str, path: str) -> str:
    """Return the change that declares knobs, as a unified diff of the file at a path."""
    before, after = map(triton_autotune.lines_of, (source, declared))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                   for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))


def inlined(source: str) -> str:
    """Return the source without the knobs that kopt declared: values replace their names."""
    source = _START.sub("", source)
    values = {match["name"]: match["value"] for match in _DECLARED.finditer(source)}
    if not values:
        text = _C_NEW.sub("", source)
        for name, value in _C_NEW.findall(source):
            text = re.sub(rf"\({name} - 1\)", str(int(value) - 1), text)
            text = re.sub(rf"\b{name}\b", value, text)
        return _C_OF_LAUNCH.sub("", _C_DECLARED.sub("", text))
    text = _DECLARED.sub("", source)
    starts = _line_starts(text)
    data = text.encode()
    for node in sorted(_knob_uses(ast.parse(text), values), key=lambda node: -_begin(node, starts)):
        begin, end = _begin(node, starts), _end(node, starts)
        if isinstance(node, ast.BoolOp) and isinstance(node.values[0], ast.Name):
            value = values[node.values[0].id]
            other = node.values[1]
            new = data[_begin(other, starts):_end(other, starts)] if value == "0" else \
                value.encode()
        else:
            assert isinstance(node, ast.Name)
            new = values[node.id].encode()
        data = data[:begin] + new + data[end:]
    return data.decode()


def _knob_uses(tree: ast.AST, values: Mapping[str, str]) -> Iterator[ast.expr]:
    """Yield the expressions that use knobs: `KNOB or expression`, and `KNOB` alone."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) \
                and isinstance(node.values[0], ast.Name) and node.values[0].id in values:
            inside.add(node.values[0])
            yield node
        elif isinstance(node, ast.Name) and node.id in values and node not in inside:
            yield node


def _triton_proposals(source: str) -> Iterator[KnobProposal]:
    tree, starts = ast.parse(source), _line_starts(source)
    products = triton_names.products(tree)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        args = [*function.args.posonlyargs, *function.args.args]
        defaults = [(args[len(args) - len(function.args.defaults) + index], value)
                    for index, value in enumerate(function.args.defaults)]
        for arg, value in defaults:
            if arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation):
                yield from _literal(value, arg.arg, function.name, "default", starts)
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
                continue
            kernel = re.findall(r"[^\W\d]\w*", f"kernel {ast.unparse(node.func.value)}")[-1]
            count = sum(bool(SIZES.search(each.arg or "")) for each in node.keywords
                        if each.arg not in USUAL)
            most = MOST_ELEMENTS if kernel not in products and count == 1 else 0
            for keyword in node.keywords:
                if keyword.arg is None or not _is_size(keyword.arg):
                    continue
                value = triton_names.only_value(function, tree, keyword.value) or keyword.value
                literals = list(_literal(value, keyword.arg, kernel, "launch", starts, most))
                sizes = USUAL.get(keyword.arg) or (TILES if kernel in products else OVERRIDES)
                yield from literals or _override_proposal(
                    keyword.value, keyword.arg, kernel, source, starts, sizes)


def _literal(node: ast.expr, name: str, kernel: str, why: str, starts: Sequence[int],
             most: int = 0) -> Iterator[KnobProposal]:
    if not _is_size(name) or not isinstance(node, ast.Constant) or \
            type(node.value) is not int or node.value < 1:
        return
    knob = _knob_name(kernel, name)
    yield KnobProposal(
        name=knob, line=node.lineno, value=node.value,
        choices=_choices_around(name, node.value, most), why=f"{why} of {kernel}", edits=(Edit(
            begin=_begin(node, starts), end=_end(node, starts), written=knob),))


def _override_proposal(node: ast.expr, name: str, kernel: str, source: str, starts: Sequence[int],
                       sizes: Sequence[int]) -> Iterator[KnobProposal]:
    if isinstance(node, ast.Constant):
        return
    begin, end, knob = _begin(node, starts), _end(node, starts), _knob_name(kernel, name)
    text = source.encode()[begin:end].decode()
    is_simple = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    yield KnobProposal(
        name=knob, line=node.lineno, value=0, choices=(0, *sizes),
        why=f"overrides {text[:30]} of {kernel}", edits=(Edit(
            begin=begin, end=end,
            written=f"{knob} or {text}" if is_simple else f"{knob} or ({text})"),))


def block_knob(kernel: str) -> str:
    """Return the name of the knob for the threads of a kernel's block."""
    return _knob_name(kernel, c_knobs.BLOCK)


def _of_c(source: str, launch: Mapping[str, int] | None) -> Iterator[KnobProposal]:
    in_source = {block_knob(number.kernel) for number in c_knobs.find(source)
                 if number.name == c_knobs.BLOCK}
    head = len(source[:c_knobs.after_includes(source)].encode())
    for name, value in (launch or {}).items():
        if name not in in_source:
            yield KnobProposal(name=name, line=1, value=value, choices=c_knobs.threads(value),
                               why="threads of a block, which only the task states",
                               edits=(Edit(begin=head, end=head, written=""),), is_of_launch=True)
    for number in c_knobs.find(source):
        if number.is_constant and (number.value < 1 or FIXED.search(number.name) or
                                   not (number.is_of_block or SIZES.search(number.name))):
            continue
        name = number.name if number.is_constant else _knob_name(number.kernel, number.name)
        if number.is_block and launch is not None and name not in launch:
            continue
        proposal = KnobProposal(
            name=name, line=source.count("\n", 0, number.at[0]) + 1, value=number.value,
            choices=number.choices or tuple(
                each for each in _choices_around(name, number.value)
                if number.value > c_knobs.MOST_THREADS or each <= c_knobs.MOST_THREADS),
            why=number.why, is_new=not number.is_constant, is_of_launch=name in (launch or ()))
        written = [(number.at,
                    f"  {_knob_comment('//', proposal)}" if number.is_constant else name),
                   *((place, name) for place in number.tied),
                   *((place, f"({name} - 1)") for place in number.less_one)]
        yield replace(proposal, edits=tuple(Edit(
            begin=len(source[:begin].encode()), end=len(source[:end].encode()), written=text)
            for (begin, end), text in written))


def _is_size(name: str) -> bool:
    return name in USUAL or bool(SIZES.search(name))


def _choices_around(name: str, value: int, most: int = 0) -> tuple[int, ...]:
    """Return a quarter to four times a value, above 32 up to `most`, or an option's usual ones."""
    if name in USUAL:
        return tuple(sorted({*USUAL[name], value}))
    choices = {max(1, value // 4), max(1, value // 2), value, 2 * value, 4 * value}
    choices |= {value << step for step in range(3, 8) if value > 32 and value << step <= most}
    return tuple(sorted(choices))


def _knob_comment(mark: str, each: KnobProposal, by: str = MARK) -> str:
    return f"{mark} kopt: knob {each.name} in [{', '.join(map(str, each.choices))}] {by}"


def _knob_name(kernel: str, name: str) -> str:
    return "_".join(filter(None, (kernel.strip("_"), name.strip("_")))).upper()


def _after_imports(source: str) -> int:
    """Return how many lines a source's docstring and first imports take."""
    line = 0
    for node in ast.parse(source).body:
        is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_doc and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        line = node.end_lineno or line
    return line


def _line_starts(source: str) -> list[int]:
    lengths = (len(line.encode()) for line in triton_autotune.lines_of(source))
    return list(accumulate(lengths, initial=0))


def _begin(node: ast.expr, starts: Sequence[int]) -> int:
    return starts[node.lineno - 1] + node.col_offset


def _end(node: ast.expr, starts: Sequence[int]) -> int:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return starts[node.end_lineno - 1] + node.end_col_offset
