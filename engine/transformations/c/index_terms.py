"""An index as a sum: which counter moves it by one element, and whether two counters can meet."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tree_sitter import Node

from engine.split.languages.syntax import walk
from engine.transformations.c.parsed_c import ParsedC

Term = tuple[str, ...]
"""The factors of a term."""
MOST_TERMS = 64


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
    left, right = (terms(c, own, values) for own in (node.named_children[0],
                                                     node.named_children[-1]))
    if sign == "*" and len(left) * len(right) > MOST_TERMS:
        return [(c.text(node),)]
    return [one + other for one in left for other in right] if sign == "*" else left + right


def is_contiguous(index: Collection[Term], name: str) -> bool:
    """Return whether a name is a term of an index, so that it moves it by one element."""
    return (name,) in index


def can_meet(index: Collection[Term], counter: str, others: Collection[str]) -> bool:
    """Return whether another counter moves an index by the same: `i + j`, `i * n + j * n`; so may
    `i + 2 * j`.

    A stride that is no number is taken to be no shorter than what it steps over: in `i * n + j`
    none does.
    """
    def strides(names: Collection[str]) -> set[Term]:
        return {tuple(sorted(factor for factor in {*term} - {name} if not factor[:1].isdigit()))
                for term in index for name in names if name in term}

    hidden = any(factor != name and re.search(rf"\b{name}\b", factor)
                 for term in index for factor in term for name in (counter, *others))
    return hidden or bool(strides((counter,)) & strides(others))


def in_one_row(places: Sequence[Collection[Term]], counter: str, others: Collection[str]) -> bool:
    """Return whether indices differ at most in other counters: `i * n + j` and `i * n + k`."""
    rows = {tuple(sorted(term for term in place if counter in term)) for place in places}
    return len(places) < 2 or (len(rows) == 1 and all(
        counter in term or (len(term) == 1 and term[0] in others)
        for place in places for term in place))


def single_values(c: ParsedC, body: Node) -> dict[str, Node]:
    """Return the values of the names that a body declares and never changes."""
    found: dict[str, Node] = {}
    changed = set[str]()
    for part in walk(body):
        if part.type == "init_declarator":
            name, value = c.declared_name(part)[0], part.child_by_field_name("value")
            if value is None or name in found:
                changed.add(name)
            else:
                found[name] = value
        elif part.type in ("assignment_expression", "update_expression"):
            left = part.child_by_field_name("left") or part.child_by_field_name("argument")
            changed |= {c.text(left)} if left is not None and left.type == "identifier" else set()
        elif part.type == "pointer_expression" and c.text(part).startswith("&"):
            changed.add(c.base(part))
    return {name: value for name, value in found.items() if name not in changed}


def counters_of(c: ParsedC, body: Node) -> frozenset[str]:
    """Return the names that the loops of a body count."""
    return frozenset(name for part in walk(body) if part.type == "for_statement"
                     and (update := part.child_by_field_name("update")) is not None
                     for name in c.names(update))
