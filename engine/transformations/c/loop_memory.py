"""Tells whether a loop's iterations write different elements and read none that another writes.

An index is a sum. Its terms show which counter moves it by one element, and whether two iterations
can have the same index.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.counted_loop import CountedLoop
from engine.transformations.c.parsed_c import ParsedC

Term = tuple[str, ...]
"""The factors of a term."""
MOST_TERMS = 64


def is_independent(c: ParsedC, loop: CountedLoop, private: frozenset[str],
                   types: dict[str, str]) -> bool:
    """Return whether iterations write different elements, and read none that another one writes."""
    varying = private | {loop.variable}
    written: dict[str, dict[str, list[Term]]] = {}
    known = _single_values(c, loop.body)
    declared = c.declared(loop.body)
    others = _counters_of(c, loop.body) - {loop.variable}
    values = _pointer_values(c, loop, types)
    for part in walk(loop.body):
        left = part.child_by_field_name("left") if part.type == "assignment_expression" else \
            part.child_by_field_name("argument") if part.type == "update_expression" else None
        if left is None or left.type == "identifier":
            continue
        base, indices = c.base(left), _indices(c, left)
        if base in private and types.get(base, "").count("*") == 1 and any(
                c.declared_name(each)[0] == base for each in parts(loop.body, "array_declarator")):
            continue  # an array of the iteration's own
        if not indices or (len(indices) > 1 and not _is_array(c, loop, base)):
            return False
        if base not in private and not _is_linear(c, indices, varying):
            return False
        place = [(*term, *([f"[{depth}]"] if depth else [])) for depth, index in enumerate(indices)
                 for term in terms(c, index, known)]
        if base in known:
            place += terms(c, known[base], known)
        elif base in declared:
            return False  # a pointer that moves
        if _can_meet(place, loop.variable, others):
            return False
        written.setdefault(base, {})["".join(c.text(left).split())] = place
    reads = {(c.base(part), "".join(c.text(part).split())) for part in (
        *c.elements(loop.body), *parts(loop.body, "pointer_expression"))}
    changed = {root for base in written for root in _roots(base, values)}
    if not all(_in_one_row(tuple(indices.values()), loop.variable, others)
               for base, indices in written.items() if base not in private):
        return False  # the elements of one iteration may be those of the next
    return bool(written) and all(text in written.get(base, ()) for base, text in reads
                                 if _roots(base, values) & changed)


def _indices(c: ParsedC, left: Node) -> list[Node]:
    """Return the indices of an element `x[i][j]`, the last one first; [] for another expression."""
    indices, node = list[Node](), left
    while node.type == "subscript_expression":
        index, base = (node.child_by_field_name(name) for name in ("index", "argument"))
        if index is None or base is None:
            return []
        indices.append(index)
        node = base
    return [] if "[" in c.text(node) else indices


def _is_array(c: ParsedC, loop: CountedLoop, name: str) -> bool:
    """Return whether a name is declared as rows of one array, not as pointers to rows."""
    return any(declarator.type == "array_declarator" and c.declared_name(declarator)[0] == name
               for part in parts(c.function_of(loop.node), "declaration", "parameter_declaration")
               for declarator in part.children_by_field_name("declarator"))


def _pointer_values(c: ParsedC, loop: CountedLoop, types: dict[str, str]) -> dict[str, set[str]]:
    """Return for each pointer of the function the pointers that its values are made of."""
    values: dict[str, set[str]] = {}
    for part in walk(c.function_of(loop.node)):
        keys = {"init_declarator": ("declarator", "value"),
                "assignment_expression": ("left", "right")}.get(part.type)
        if keys is None:
            continue
        target, value = (part.child_by_field_name(key) for key in keys)
        name = c.declared_name(part)[0] if part.type == "init_declarator" else c.text(target)
        if value is not None and "*" in types.get(name, ""):
            values.setdefault(name, set()).update(
                pointer for pointer in c.names(value) if "*" in types.get(pointer, ""))
    return values


def _roots(name: str, values: dict[str, set[str]]) -> set[str]:
    """Return the pointers that a pointer is derived from, itself included."""
    roots, left = set[str](), [name]
    while left:
        pointer = left.pop()
        if pointer not in roots:
            roots.add(pointer)
            left.extend(values.get(pointer, ()))
    return roots


def _is_linear(c: ParsedC, indices: Sequence[Node], varying: frozenset[str]) -> bool:
    """Return whether indices move with the iteration, by additions and products alone."""
    return any(c.names(index) & varying for index in indices) and not any(
        part.type in ("subscript_expression", "call_expression", "conditional_expression")
        or (part.type == "binary_expression" and c.text(part.children[1]) not in "+-*")
        for index in indices for part in walk(index))


def terms(c: ParsedC, node: Node, values: Mapping[str, Node] | None = None) -> list[Term]:
    """Return the terms of a sum, products of sums multiplied out.

    Names with a value in `values` are replaced by it.
    """
    while node.type in ("parenthesized_expression", "cast_expression") or (
            node.type == "unary_expression" and c.text(node.children[0]) in "+-"):
        node = node.named_children[-1]
    known = dict(values or {})
    if node.type == "identifier" and (value := known.pop(c.text(node), None)) is not None:
        return terms(c, value, known)
    sign = c.text(node.children[1]) if node.type == "binary_expression" else ""
    if sign not in ("+", "-", "*"):
        return [(c.constants.get(c.text(node), c.text(node)),)]
    left, right = (terms(c, child, values) for child in (node.named_children[0],
                                                         node.named_children[-1]))
    if sign == "*" and len(left) * len(right) > MOST_TERMS:
        return [(c.text(node),)]
    return [term + other for term in left for other in right] if sign == "*" else left + right


def is_contiguous(index: Collection[Term], name: str) -> bool:
    """Return whether a counter is a term of an index, which it then moves by one element."""
    return (name,) in index


def _can_meet(index: Collection[Term], counter: str, others: Collection[str]) -> bool:
    """Return whether iterations may share an index: in `i + j`, `i * n + j * n`, `i + 2 * j`.

    They may if another counter has the same stride, numbers aside. A symbolic stride is taken to
    be at least as long as what it steps over: in `i * n + j` no two iterations meet.
    """
    def strides(names: Collection[str]) -> set[Term]:
        return {tuple(sorted(factor for factor in {*term} - {name} if not factor[:1].isdigit()))
                for term in index for name in names if name in term}

    hidden = any(factor != name and re.search(rf"\b{name}\b", factor)
                 for term in index for factor in term for name in (counter, *others))
    return hidden or bool(strides((counter,)) & strides(others))


def _in_one_row(places: Sequence[Collection[Term]], counter: str, others: Collection[str]) -> bool:
    """Return whether indices differ at most in other counters: `i * n + j` and `i * n + k`."""
    rows = {tuple(sorted(term for term in place if counter in term)) for place in places}
    return len(places) < 2 or (len(rows) == 1 and all(
        counter in term or (len(term) == 1 and term[0] in others)
        for place in places for term in place))


def _single_values(c: ParsedC, body: Node) -> dict[str, Node]:
    """Return the values of the names that a body declares and never changes."""
    values: dict[str, Node] = {}
    changed = set[str]()
    for part in walk(body):
        if part.type == "init_declarator":
            name, value = c.declared_name(part)[0], part.child_by_field_name("value")
            if value is None or name in values:
                changed.add(name)
            else:
                values[name] = value
        elif part.type in ("assignment_expression", "update_expression"):
            left = part.child_by_field_name("left") or part.child_by_field_name("argument")
            changed |= {c.text(left)} if left is not None and left.type == "identifier" else set()
        elif part.type == "pointer_expression" and c.text(part).startswith("&"):
            changed.add(c.base(part))
    return {name: value for name, value in values.items() if name not in changed}


def _counters_of(c: ParsedC, body: Node) -> frozenset[str]:
    """Return the names that the loops of a body count."""
    return frozenset(name for part in parts(body, "for_statement")
                     for name in c.names_in(part, "update"))
