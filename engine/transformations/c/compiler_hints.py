"""Hints for the compiler in a source.

`c-relaxed-math`, `c-vector-math`: what it may do with floating-point values. `c-restrict`: that the
pointers of a function do not overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from tree_sitter import Node

from engine.split.languages.syntax import parts
from engine.transformations.c.parsed_c import ParsedC
from engine.transformations.transformation import DoesNotApply, Transformation, Transformed

_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+(?:GCC[ \t]+optimize|clang[ \t]+fp|STDC[ \t]+FP)",
                     re.MULTILINE)
_RELAXED = """\
#if defined(__clang__)
#pragma clang fp reassociate(on) contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "associative-math", "reciprocal-math", "no-signed-zeros", \
"no-trapping-math", "no-math-errno")
#endif
"""
_VECTOR = """\
#if defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && defined(__x86_64__)
{declarations}
#endif
"""
_IN_LIBMVEC = re.compile(r"(?:exp|log|sin|cos|pow)f?")
"""Functions with vector versions for x86-64 in glibc 2.22 and later, accurate to 4 ulp."""


class RelaxedMath(Transformation):
    name = "c-relaxed-math"
    aim = "sums in any order, reciprocals and no errno, so that the compiler can use vectors; " \
          "infinities and NaNs stay what they are"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        if _PRAGMA.search(source):
            raise DoesNotApply("a pragma already sets how floating-point values are computed")
        if re.search(r"kahan|neumaier|compensat|\bvolatile\b", source, re.IGNORECASE):
            raise DoesNotApply("a compensated sum or a volatile access depends on the order")
        if not re.search(r"\b(?:float|double)\b", source):
            raise DoesNotApply("the source has no floating-point values")
        c.declare(_RELAXED)
        return c.transformed("relaxed rounding in the whole file")


class VectorMath(Transformation):
    name = "c-vector-math"
    aim = "vector versions of exp, log, sin, cos and pow from the system's library"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        used = {c.text(part.children[0]) for function in c.functions
                for part in parts(function, "call_expression")}
        functions = sorted(name for name in used if _IN_LIBMVEC.fullmatch(name))
        if not functions:
            raise DoesNotApply("no called function has a vector version in the library")
        if "__simd__" in source:
            raise DoesNotApply("vector versions are already declared")
        declarations = [
            f'__attribute__((__simd__("notinbranch"), __const__)) {kind} {name}({arguments});'
            for name in functions for kind in ["float" if name.endswith("f") else "double"]
            for arguments in [f"{kind}, {kind}" if name.startswith("pow") else kind]]
        relaxed = "" if _PRAGMA.search(source) else _RELAXED  # an ordered sum uses no vectors
        c.declare(relaxed + _VECTOR.format(declarations="\n".join(declarations)))
        return c.transformed(f"vector versions of {', '.join(functions)}")


class Restrict(Transformation):
    name = "c-restrict"
    aim = "pointers that are promised not to overlap (restrict), so that stores block no loads"
    parsed: ClassVar[type[ParsedC]] = ParsedC

    def apply(self, source: str) -> Transformed:
        c = self.parsed(source)
        functions = list[str]()
        for function in c.functions:
            declarator = function.child_by_field_name("declarator")
            name = c.declared_name(declarator)[0] if declarator is not None else ""
            pointers = list(_pointers(c, function))
            if name and pointers and not _is_called_with_aliases(c, name):
                functions.append(name)
                for pointer in pointers:
                    c.insert(pointer.start_byte, f"{c.restrict} ")
        if not functions:
            raise DoesNotApply("no function that writes memory has pointers without restrict")
        return c.transformed(f"restrict on the pointers of {', '.join(functions)}")


def _pointers(c: ParsedC, function: Node) -> Iterator[Node]:
    """Yield the names of a function's pointer parameters that lack restrict.

    There are none if it has a single pointer or writes no memory.
    """
    declarator, body = (function.child_by_field_name(key) for key in ("declarator", "body"))
    if declarator is None or body is None:
        return
    pointers = []
    for parameter in parts(declarator, "parameter_declaration"):
        inner = parameter.child_by_field_name("declarator")
        name = inner.child_by_field_name("declarator") if inner is not None else None
        if inner is not None and inner.type == "pointer_declarator" and name is not None \
                and name.type == "identifier":
            pointers.append((name, "restrict" in c.text(inner)))
    writes = any(part.parent is not None and part.parent.type in (
                     "assignment_expression", "update_expression")
                 and part.parent.named_children[0] == part
                 for part in parts(body, "subscript_expression", "pointer_expression"))
    if len(pointers) > 1 and (writes or "*" in c.written(body)):
        yield from (name for name, has_it in pointers if not has_it)


def _is_called_with_aliases(c: ParsedC, name: str) -> bool:
    """Return whether a call in the source passes one pointer variable for two arguments."""
    for function in c.functions:
        types = c.types(function)
        for part in parts(function, "call_expression"):
            if c.text(part.children[0]) == name:
                pointers = [name for argument in part.named_children[1].named_children
                            for name in c.names(argument) if "*" in types.get(name, "")]
                if len(pointers) != len(set(pointers)):
                    return True
    return False
