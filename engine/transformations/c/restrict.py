"""`c-restrict`: declares that a function's pointers do not overlap."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from engine.split.languages.syntax import walk
from engine.transformations.c.parsed_c import ParsedC
from engine.transformations.transformation import DoesNotApply, Transformation, Transformed


class Restrict(Transformation):
    name = "c-restrict"
    aim = "pointers that are promised not to overlap (restrict), so that stores block no loads"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        functions = list[str]()
        for function in c.functions:
            name, pointers = _name(c, function), list(_pointers(c, function))
            if name and pointers and not _is_called_with_one_twice(c, name):
                functions.append(name)
                for pointer in pointers:
                    c.insert(pointer.start_byte, "restrict ")
        if not functions:
            raise DoesNotApply("no function that writes memory has pointers without restrict")
        return c.transformed(f"restrict on the pointers of {', '.join(functions)}")


def _name(c: ParsedC, function: Node) -> str:
    declarator = function.child_by_field_name("declarator")
    return c.declared_name(declarator)[0] if declarator is not None else ""


def _pointers(c: ParsedC, function: Node) -> Iterator[Node]:
    """Yield the names of pointer parameters without restrict; none for a single pointer or a
    read-only function.
    """
    declarator, body = (function.child_by_field_name(key) for key in ("declarator", "body"))
    if declarator is None or body is None:
        return
    parameters = [part for part in walk(declarator) if part.type == "parameter_declaration"]
    pointers = []
    for parameter in parameters:
        inner = parameter.child_by_field_name("declarator")
        name = inner.child_by_field_name("declarator") if inner is not None else None
        if inner is not None and inner.type == "pointer_declarator" and name is not None \
                and name.type == "identifier":
            pointers.append((name, "restrict" in c.text(inner)))
    writes = any(part.type in ("subscript_expression", "pointer_expression")
                 and part.parent is not None and part.parent.type in (
                     "assignment_expression", "update_expression")
                 and part.parent.named_children[0] == part for part in walk(body))
    if len(pointers) > 1 and (writes or "*" in c.written(body)):
        yield from (name for name, has_it in pointers if not has_it)


def _is_called_with_one_twice(c: ParsedC, name: str) -> bool:
    """Return whether a call in the source passes one variable for two arguments."""
    for function in c.functions:
        types = c.types(function)
        for part in walk(function):
            if part.type == "call_expression" and c.text(part.children[0]) == name:
                pointers = [own for argument in part.named_children[1].named_children
                            for own in c.names(argument) if "*" in types.get(own, "")]
                if len(pointers) != len(set(pointers)):
                    return True
    return False
