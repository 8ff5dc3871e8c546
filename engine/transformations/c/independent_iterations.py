"""Whether a loop's iterations write different memory, and read none that another writes."""

from __future__ import annotations

from tree_sitter import Node

from engine.split.languages.syntax import walk
from engine.transformations.c.counted_loop import CountedLoop
from engine.transformations.c.index_terms import (
    Term,
    can_meet,
    counters_of,
    in_one_row,
    single_values,
    terms,
)
from engine.transformations.c.parsed_c import ParsedC


def is_independent(c: ParsedC, loop: CountedLoop, own: frozenset[str],
                    types: dict[str, str]) -> bool:
    """Return whether iterations write different elements, and read none that another one writes."""
    varying = own | {loop.variable}
    written: dict[str, dict[str, list[Term]]] = {}
    known = single_values(c, loop.body)
    declared = c.declared(loop.body)
    others = counters_of(c, loop.body) - {loop.variable}
    values = _pointer_values(c, loop, types)
    for part in walk(loop.body):
        left = part.child_by_field_name("left") if part.type == "assignment_expression" else \
            part.child_by_field_name("argument") if part.type == "update_expression" else None
        if left is None or left.type == "identifier":
            continue
        index = left.child_by_field_name("index")
        base = c.base(left)
        if base in own and types.get(base, "").count("*") == 1 and _is_array(c, loop, base):
            continue  # an array of the iteration's own
        if left.type != "subscript_expression" or index is None or "[" in c.text(
                left.child_by_field_name("argument")):
            return False
        if base not in own and not _is_linear(c, index, varying):
            return False
        place = terms(c, index, known)
        if base in known:
            place += terms(c, known[base], known)
        elif base in declared:
            return False  # a pointer that moves
        if can_meet(place, loop.variable, others):
            return False
        written.setdefault(base, {})["".join(c.text(left).split())] = place
    reads = {(c.base(part), "".join(c.text(part).split())) for part in walk(loop.body)
             if part.type in ("subscript_expression", "pointer_expression")}
    changed = {root for base in written for root in _roots(base, values)}
    if not all(in_one_row(tuple(own_places.values()), loop.variable, others)
               for base, own_places in written.items() if base not in own):
        return False  # the elements of one iteration may be those of the next
    return bool(written) and all(text in written.get(base, ()) for base, text in reads
                                 if _roots(base, values) & changed)


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
                own for own in c.names(value) if "*" in types.get(own, ""))
    return values


def _roots(name: str, values: dict[str, set[str]]) -> set[str]:
    """Return the pointers that a pointer goes back to, itself among them."""
    found, left = set[str](), [name]
    while left:
        own = left.pop()
        if own not in found:
            found.add(own)
            left.extend(values.get(own, ()))
    return found


def _is_array(c: ParsedC, loop: CountedLoop, name: str) -> bool:
    return any(part.type == "array_declarator" and c.declared_name(part)[0] == name
               for part in walk(loop.body))


def _is_linear(c: ParsedC, index: Node, varying: frozenset[str]) -> bool:
    """Return whether an index moves with the iteration, by additions and products alone."""
    return bool(c.names(index) & varying) and not any(
        part.type in ("subscript_expression", "call_expression", "conditional_expression")
        or (part.type == "binary_expression" and c.text(part.children[1]) not in "+-*")
        for part in walk(index))
