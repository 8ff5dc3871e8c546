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
from dataclasses import replace

from harness.search.space import c_knobs, python_entry, triton_autotune, triton_proposals
from harness.search.space.knob_edits import (
    FIXED,
    SIZES,
    Edit,
    KnobProposal,
    begin_of,
    choices_around,
    end_of,
    knob_name,
    line_starts,
)

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
            candidates = [each for each in triton_proposals.proposals(source)
                          if each.line not in hidden]
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
    starts = line_starts(text)
    data = text.encode()
    for node in sorted(_knob_uses(ast.parse(text), values),
                       key=lambda node: -begin_of(node, starts)):
        begin, end = begin_of(node, starts), end_of(node, starts)
        if isinstance(node, ast.BoolOp) and isinstance(node.values[0], ast.Name):
            value = values[node.values[0].id]
            other = node.values[1]
            new = data[begin_of(other, starts):end_of(other, starts)] if value == "0" else \
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


def block_knob(kernel: str) -> str:
    """Return the name of the knob for the threads of a kernel's block."""
    return knob_name(kernel, c_knobs.BLOCK)


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
        name = number.name if number.is_constant else knob_name(number.kernel, number.name)
        if number.is_block and launch is not None and name not in launch:
            continue
        proposal = KnobProposal(
            name=name, line=source.count("\n", 0, number.at[0]) + 1, value=number.value,
            choices=number.choices or tuple(
                each for each in choices_around(name, number.value)
                if number.value > c_knobs.MOST_THREADS or each <= c_knobs.MOST_THREADS),
            why=number.why, is_new=not number.is_constant, is_of_launch=name in (launch or ()))
        written = [(number.at,
                    f"  {_knob_comment('//', proposal)}" if number.is_constant else name),
                   *((place, name) for place in number.tied),
                   *((place, f"({name} - 1)") for place in number.less_one)]
        yield replace(proposal, edits=tuple(Edit(
            begin=len(source[:begin].encode()), end=len(source[:end].encode()), written=text)
            for (begin, end), text in written))


def _knob_comment(mark: str, each: KnobProposal, by: str = MARK) -> str:
    return f"{mark} kopt: knob {each.name} in [{', '.join(map(str, each.choices))}] {by}"


def _after_imports(source: str) -> int:
    """Return how many lines a source's docstring and first imports take."""
    line = 0
    for node in ast.parse(source).body:
        is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_doc and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        line = node.end_lineno or line
    return line
