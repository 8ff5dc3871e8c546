"""`c-relaxed-math` and `c-vector-math`: what the compiler may do with floating-point values."""

from __future__ import annotations

import re

from engine.split.languages.syntax import walk
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
"""Functions of which glibc 2.22 and later have vector versions for x86-64, within 4 ulp."""


class RelaxedMath(Transformation):
    name = "c-relaxed-math"
    aim = "sums in any order, reciprocals and no errno, so that the compiler can use vectors; " \
          "infinities and NaNs stay what they are"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        if _PRAGMA.search(source):
            raise DoesNotApply("a pragma says already how floating-point values are computed")
        if re.search(r"kahan|neumaier|compensat|\bvolatile\b", source, re.IGNORECASE):
            raise DoesNotApply("a compensated sum, or something volatile, needs its order")
        if not re.search(r"\b(?:float|double)\b", source):
            raise DoesNotApply("the source has no floating-point values")
        c.declare(_RELAXED)
        return c.transformed("relaxed rounding in the whole file")


class VectorMath(Transformation):
    name = "c-vector-math"
    aim = "vector versions of exp, log, sin, cos and pow from the system's library"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        used = {c.text(part.children[0]) for function in c.functions for part in walk(function)
                if part.type == "call_expression"}
        wanted = sorted(name for name in used if _IN_LIBMVEC.fullmatch(name))
        if not wanted:
            raise DoesNotApply("no function is called that the library has for vectors")
        if "__simd__" in source:
            raise DoesNotApply("vector versions are declared already")
        declarations = [
            f'__attribute__((__simd__("notinbranch"), __const__)) {kind} {name}({arguments});'
            for name in wanted for kind in ["float" if name.endswith("f") else "double"]
            for arguments in [f"{kind}, {kind}" if name.startswith("pow") else kind]]
        relaxed = "" if _PRAGMA.search(source) else _RELAXED  # a sum in order has no vectors
        c.declare(relaxed + _VECTOR.format(declarations="\n".join(declarations)))
        return c.transformed(f"vector versions of {', '.join(wanted)}")
