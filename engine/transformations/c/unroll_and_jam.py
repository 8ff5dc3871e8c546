"""`c-unroll-and-jam`: several iterations of an outer loop go through its inner loops together.

Each of these iterations is a lane. Each value that is private to an iteration becomes an array with
one element for each lane. Sums keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.counted_loop import CountedLoop, loops, statements
from engine.transformations.c.loop_memory import is_contiguous, is_independent, terms
from engine.transformations.c.parsed_c import LOOPS, ParsedC, kind_of_type
from engine.transformations.transformation import (
    DoesNotApply,
    Replacement,
    Transformation,
    Transformed,
    free_name,
    replaced,
)

_HEAD = ("initializer", "condition", "update")
"""What determines the trip count of a `for`."""


class UnrollAndJam(Transformation):
    name = "c-unroll-and-jam"
    aim = "several iterations of an outer loop together, so that they share loads and fill vectors"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        jams = [jam for function in c.functions for types in [c.types(function)]
                for loop in loops(c, function) if (jam := _jam(c, loop, types))]
        if not jams:
            raise DoesNotApply("no outer loop has independent iterations and an inner loop with "
                               "the same bounds in each")
        best = max(jams, key=lambda jam: (jam.is_contiguous, jam.loop.node.start_byte))
        knob = c.knob("JAM", 16 if best.is_contiguous else 4,
                      (1, 2, 4, 8, 16, 32) if best.is_contiguous else (1, 2, 3, 4, 6, 8),
                      f"iterations together, line {best.loop.line}")
        c.edit(best.written(knob.name))
        return c.transformed(f"{best.loop.variable} unrolled and jammed", [best.loop.line])


@dataclass(kw_only=True)
class _Jam:
    """A loop that can be unrolled and jammed.

    `per_lane` names have a value for each lane, `shared` names have one value for all lanes.
    """

    c: ParsedC
    loop: CountedLoop
    per_lane: frozenset[str]
    shared: frozenset[str]
    is_contiguous: bool
    lane: str = field(init=False)
    name_of: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        text = self.c.text(self.loop.node)
        self.lane = free_name(text, "lane")
        self.name_of = {name: f"{free_name(text, f'{name}_of')}[{self.lane}]"
                        for name in self.per_lane}
        self.name_of[self.loop.variable] = f"({self.loop.variable} + {self.lane})"

    def written(self, knob: str) -> Replacement:
        c, loop, indent = self.c, self.loop, self.c.indent(self.loop.node)
        i = loop.variable
        lines = ["{", *([f"    {loop.head}"] if loop.head else []),
                 f"    for (; {i} + ({knob} - 1) < {loop.bound}; {i} += {knob}) {{",
                 *(f"        {line}" for line in self._lines(statements(loop.body), knob)),
                 "    }",
                 f"    for (; {i} < {loop.bound}; {i}++)",
                 f"        {c.text(loop.body)}",
                 "}"]
        return Replacement(loop.node.start_byte, loop.node.end_byte, f"\n{indent}".join(lines))

    def _lines(self, body: Sequence[Node], knob: str) -> Iterator[str]:
        """Yield the lines of statements that all lanes execute together."""
        over = f"for (int {self.lane} = 0; {self.lane} < {knob}; {self.lane}++) {{"
        for part in body:
            if part.type == "declaration":
                yield from self._declared(part, knob, over)
            elif _is_shared(self.c, part, self.per_lane | {self.loop.variable}):
                yield " ".join(self.c.text(part).split())
            elif part.type == "compound_statement":
                yield from ["{", *(f"    {line}" for line in self._lines(statements(part), knob)),
                            "}"]
            elif part.type == "for_statement" and not self._is_inner_run(part) \
                    and not self.c.names_in(part, *_HEAD) & self.name_of.keys():
                inner = part.child_by_field_name("body")
                assert inner is not None
                yield " ".join(self.c.source[part.start_byte:inner.start_byte].split()) + " {"
                yield from (f"    {line}" for line in self._lines(statements(inner), knob))
                yield "}"
            elif self._changes_shared(part):
                raise DoesNotApply(f"an iteration changes a variable that all share, line "
                                   f"{self.c.line(part)}")
            else:
                yield over
                yield from (f"    {line}" for line in self._renamed(part).split("\n"))
                yield "}"

    def _renamed(self, part: Node) -> str:
        """Return a statement as one lane runs it; names that it declares itself are unchanged."""
        declared = self.c.declared(part)
        name_of = {name: renamed for name, renamed in self.name_of.items() if name not in declared}
        return replaced(self.c.source, self.c.renamed(part, name_of), part.start_byte,
                        part.end_byte)

    def _changes_shared(self, part: Node) -> bool:
        """Return whether a statement changes a shared name that it does not declare."""
        declared = self.c.declared(part)
        return bool((self.c.written(part) - declared) & self.shared)

    def _is_inner_run(self, part: Node) -> bool:
        """Return whether each lane runs all of an inner loop: its accesses are contiguous."""
        outer = part.parent
        while outer is not None and outer.type != "for_statement":
            outer = outer.parent
        body = part.child_by_field_name("body")
        return not self.is_contiguous and body is not None \
            and not self._changes_shared(part) and outer != self.loop.node \
            and not any(parts(body, *LOOPS)) \
            and any(is_contiguous(terms(self.c, index), name)
                    for name in self.c.names_in(part, "update") for index in self.c.indices(part))

    def _declared(self, part: Node, knob: str, over: str) -> Iterator[str]:
        c, declared = self.c, part.child_by_field_name("type")
        head = c.source[part.start_byte:declared.end_byte] if declared is not None else ""
        for declarator in part.children_by_field_name("declarator"):
            name = c.declared_name(declarator)[0]
            if name not in self.per_lane:
                yield f"{head} {c.text(declarator)};"
                continue
            inner = declarator.child_by_field_name("declarator") \
                if declarator.type == "init_declarator" else declarator
            value = declarator.child_by_field_name("value") \
                if declarator.type == "init_declarator" else None
            plain = self.name_of[name].removesuffix(f"[{self.lane}]")
            array = re.sub(rf"\b{name}\b", f"{plain}[{knob}]", c.text(inner), count=1)
            kind = head if "*" in array else re.sub(r"\bconst\s+", "", head)
            if value is None or value.type == "initializer_list":
                yield f"{kind} {array}{'' if value is None else ' = {0}'};"
            else:
                yield f"{kind} {array};"
                yield f"{over} {self.name_of[name]} = {self._renamed(value)}; }}"


def _jam(c: ParsedC, loop: CountedLoop, types: dict[str, str]) -> _Jam | None:
    """Return how a loop is jammed, None if its iterations are dependent or nothing is gained."""
    body, written = loop.body, c.written(loop.body)
    inner = list(parts(body, "for_statement"))
    if not inner or "*" in written or len(list(walk(body))) > 2000:
        return None
    private = c.declared(body)
    if any("static" in c.text(part) or any(
            re.sub(r"[{}\s]", "", c.text(element)) not in ("0", "")
            for element in parts(part, "initializer_list")) for part in parts(body, "declaration")):
        return None
    if any("*" not in types.get(name, "") for name in written - private - _counters(c, body)):
        return None
    shared = _shared(c, body, private, loop.variable, types)
    copied = private - shared
    if not is_independent(c, loop, copied, types):
        return None
    jammed = [part for part in inner if not c.names_in(part, *_HEAD) & (copied | {loop.variable})]
    if not jammed:
        return None
    return _Jam(c=c, loop=loop, per_lane=copied, shared=frozenset(shared), is_contiguous=any(
        is_contiguous(terms(c, index), loop.variable)
        for part in jammed for index in c.indices(part)))


def _counters(c: ParsedC, body: Node) -> frozenset[str]:
    """Return the names that only count inner loops, each of which begins with a first value."""
    counting: dict[str, list[Node]] = {}
    for part in parts(body, "for_statement"):
        first = part.child_by_field_name("initializer")
        if first is not None and first.type == "assignment_expression":
            counting.setdefault(c.text(first.child_by_field_name("left")), []).append(part)
    return frozenset(name for name, inner in counting.items() if all(
        name not in c.written(nested) for part in inner
        if (nested := part.child_by_field_name("body"))) and all(
        any(part.start_byte <= node.start_byte < part.end_byte for part in inner)
        for node in parts(body, "identifier") if c.text(node) == name))


def _shared(c: ParsedC, body: Node, private: frozenset[str], variable: str,
            types: dict[str, str]) -> set[str]:
    """Return the integers declared in a body that have the same values in all iterations."""
    values: dict[str, list[Node | None]] = {}
    for part in walk(body):
        if part.type == "init_declarator":
            values.setdefault(c.declared_name(part)[0], []).append(
                part.child_by_field_name("value"))
        elif part.type == "assignment_expression":
            values.setdefault(c.base(part.child_by_field_name("left")), []).append(
                None if _is_conditional(part, body) else part.child_by_field_name("right"))
        elif part.type == "update_expression" and _is_conditional(part, body):
            values.setdefault(c.base(part.child_by_field_name("argument")), []).append(None)
    shared = {name for name in private if kind_of_type(types.get(name, "")) == "int"}
    while True:
        varying = {name for name in shared if any(
            value is None or c.names(value) & ((private - shared) | {variable}) or any(parts(
                value, "subscript_expression", "pointer_expression", "call_expression"))
            for value in values.get(name, ()))}
        if not varying:
            return shared
        shared -= varying


def _is_conditional(part: Node, body: Node) -> bool:
    node = part.parent
    while node is not None and node != body:
        if node.type in ("if_statement", "while_statement", "do_statement",
                         "conditional_expression"):
            return True
        node = node.parent
    return False


def _is_shared(c: ParsedC, part: Node, copied: frozenset[str]) -> bool:
    """Return whether a statement uses only shared integers."""
    return part.type == "expression_statement" and not c.names(part) & copied and not any(
        parts(part, "subscript_expression", "pointer_expression"))
