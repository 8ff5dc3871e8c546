"""Finds a program's own CPU version of a kernel, and writes it in double as the reference."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.discovery.program import host_program
from engine.discovery.program.host_expression import HostExpressions, UnknownValue
from engine.discovery.program.host_program import Frame
from engine.discovery.project import cpp_as_c, pointer_roles
from engine.discovery.project.device_sources import (
    TYPES,
    DeclaredFunction,
    declared,
    plain_text,
    split_parts,
)
from engine.discovery.project.sources import CFunction, arguments
from engine.transformations.c.parsed_c import MATH, ParsedC
from harness.compile.device_code import source_constants
from harness.tasks.target import Arg

NAMED = re.compile(
    r"(?i)cpu|(?:^|_)(?:ref|host|seq|serial|expected|naive|check)(?:$|_)|reference|gold|host$|^host"
    r"|(?<=[a-z])Ref$")
"""Names of functions that compute on the CPU what a kernel computes."""
INCLUDES = "".join(f"#include <{name}>\n" for name in (
    "algorithm", "cfloat", "climits", "cmath", "cstdint", "cstdio", "cstdlib", "cstring", "limits",
    "utility", "vector"))
C_NAMES = {"float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t",
           "int8": "int8_t", "uint8": "uint8_t"}
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?:\\\n|[^\n])*", re.MULTILINE)
_CONSTANT = re.compile(r"^(?:static\s+)?(?:const|constexpr)\b[^;(){}]*?\b(?P<name>\w+)\s*(?:=|\[)"
                       r"[^;]*;", re.MULTILINE)
_BITS = re.compile(r"\(\s*(?:const\s+)?(?:unsigned|u?int\w*|long)(?:\s+\w+)?\s*\*\s*\)\s*&"
                   r"|\bunion\b|_cast\s*<\s*(?:const\s+)?(?:unsigned|u?int\w*)\s*\*|__\w+2\w+\s*\(")
"""Reads a number's bits, or converts one of another size: in double that is another function."""
_ON_DEVICE = re.compile(r'\b__(?:host|device|forceinline|noinline)__\b|\bextern\s*"C"')
_MEMORY = re.compile(r"^(?:d|h|dev|device|host|gpu|cpu|ref)_|_(?:d|h|dev|device|host|gpu|cpu|ref)$"
                     r"|^[dh](?=[A-Z])")
"""What a program adds to an array's name for the memory that it is in."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_USUAL = re.compile(r"cpu|gpu|cuda|kernel|forward|backward|host|device|ref|reference|naive|gold"
                    r"|simple|compute|fused|test|f|v")


class ParsedHost(ParsedC):
    """The tree of a program's functions; the grammar of C may not know all of them."""

    tolerates_errors = True


@dataclass(frozen=True)
class HostReference:
    """A CPU function of a program, and the text of a C++ file with it in double."""

    name: str
    text: str


def find(kernel: CFunction, own: str, others: Mapping[str, str]) -> Iterator[HostReference]:
    """Yield the functions whose arguments agree with a kernel's, those of its own file first.

    They write what the kernel writes. Nothing says yet that they compute the same.
    """
    program = "\n".join([own, *others.values()])
    for text in (own, *others.values()):
        functions = {each.name: each for each in declared(plain_text(text))}
        for each in sorted(functions.values(), key=lambda one: -len(_shared(kernel, one.name))):
            if not NAMED.search(each.name) or each.name == kernel.name or each.is_global \
                    or each.template or not re.search(r"\bvoid$", each.head):
                continue
            if values := _values(kernel, each, text, program):
                needed = _needed(each, functions)
                if needed and not any(_BITS.search(one.body) for one in needed):
                    yield HostReference(each.name, _file(kernel, each, needed, values, text))


def _shared(kernel: CFunction, name: str) -> set[str]:
    """Return the words that the names of a kernel and a function share, but for usual ones."""
    words, others = (set(map(str.lower, _WORD.findall(each)))
                     for each in (kernel.name.partition("<")[0], name))
    return {word for word in words & others if not _USUAL.fullmatch(word)}


def _values(kernel: CFunction, function: DeclaredFunction, text: str, program: str) -> list[str]:
    """Return which of the kernel's arguments each parameter gets, [] if that is not clear."""
    args = arguments(",".join(part.partition("=")[0] for part in split_parts(function.parameters)),
                     TYPES)
    if not args:
        return []
    args = pointer_roles.with_roles(args, cpp_as_c.rewrite(text), function.name, ParsedHost)
    for names in (_by_name(kernel.args, args), _by_call(kernel, function, args, program),
                  _by_position(kernel.args, args) if _shared(kernel, function.name) else []):
        if names and _agree(kernel.args, args, names):
            return names
    return []


def _by_name(wanted: Sequence[Arg], args: Sequence[Arg]) -> list[str]:
    names = {arg.name for arg in wanted}
    return [arg.name for arg in args] if all(arg.name in names for arg in args) else []


def _by_position(wanted: Sequence[Arg], args: Sequence[Arg]) -> list[str]:
    return [arg.name for arg in wanted] if len(wanted) == len(args) else []


def _by_call(kernel: CFunction, function: DeclaredFunction, args: Sequence[Arg],
             program: str) -> list[str]:
    """Return the arguments by what a program passes to both, but for the memory in names.

    Sizes whose product the kernel gets are that size divided by the numbers of all but the first.
    """
    plain = plain_text(program)
    launched = next(host_program.calls(kernel.name, plain), None)
    called = next(host_program.calls(function.name, plain), None)
    if launched is None or called is None or len(called.values) < len(args):
        return []
    names = {_plain_value(value, launched.frame): arg.name
             for value, arg in zip(launched.values, kernel.args, strict=False)}
    values = [_plain_value(value, called.frame) for value, _ in zip(
        called.values, args, strict=False)]
    rest = [value for value in values if value not in names]
    if rest:
        product = next((arg.name for value, arg in zip(launched.values, kernel.args, strict=False)
                        if _factors(value, launched.frame) == sorted(rest)), "")
        numbers = HostExpressions(constants=source_constants.find(program))
        try:
            others = {value: int(numbers.number(text, called.frame)) for value, text in zip(
                values, called.values, strict=False) if value in rest[1:]}
        except UnknownValue:
            return []
        if not product or 0 in others.values():
            return []
        names |= {value: str(number) for value, number in others.items()}
        names[rest[0]] = f"({product} / {math.prod(others.values())})"
    return [names[value] for value in values]


def _plain_value(text: str, frame: Frame) -> str:
    """Return the outermost name of a value, without what says in which memory it is."""
    around: Frame | None = frame
    while around is not None and around.passed and (text := text.strip()) in around.passed:
        text, around = around.passed[text], around.caller
    bare = text.strip().removesuffix(".data()")
    while bare != (shorter := _MEMORY.sub("", bare)) and shorter:
        bare = shorter
    return bare.lower()


def _factors(text: str, frame: Frame) -> list[str]:
    """Return the plain names whose product a value is, [] if it is none."""
    around: Frame | None = frame
    while around is not None and text.strip().isidentifier():
        if (name := text.strip()) in around.variables:
            text = around.variables[name]
            break
        text, around = around.passed.get(name, name), around.caller
    parts = text.split("*")
    return sorted(_plain_value(part, around or frame) for part in parts) if len(parts) > 1 else []


def _agree(wanted: Sequence[Arg], args: Sequence[Arg], names: Sequence[str]) -> bool:
    """Return whether types agree, and what the kernel writes is what is written.

    What is not a name of the kernel's is a number.
    """
    by_name = {arg.name: arg for arg in wanted}
    pairs = [(by_name.get(name), arg) for name, arg in zip(names, args, strict=True)]
    written = {name for name, arg in zip(names, args, strict=True) if arg.role}
    used = [one.name for one, _ in pairs if one is not None]
    return len(set(used)) == len(used) and all(
        (other.shape is None and "int" in other.dtype) if one is None else
        (one.shape is None) == (other.shape is None)
        and ("float" in one.dtype) == ("float" in other.dtype)
        and (one.shape is None or "float" in one.dtype or one.dtype == other.dtype)
        for one, other in pairs) and {arg.name for arg in wanted if arg.role} == written


def _needed(function: DeclaredFunction,
            functions: Mapping[str, DeclaredFunction]) -> list[DeclaredFunction]:
    """Return a function after those that it calls, [] if one of them runs on a GPU only."""
    found: dict[str, DeclaredFunction] = {}

    def add(each: DeclaredFunction) -> bool:
        if each.is_global or ("__device__" in each.head and "__host__" not in each.head):
            return False
        called = [functions[name] for name in dict.fromkeys(_NAME.findall(each.body))
                  if name in functions and name not in found and name != each.name]
        complete = all(add(other) for other in called)
        found.setdefault(each.name, each)
        return complete

    return list(found.values()) if add(function) else []


def _file(kernel: CFunction, function: DeclaredFunction, needed: Sequence[DeclaredFunction],
          values: Sequence[str], source: str) -> str:
    """Return the C++ file: what the function needs in a namespace, and the entry around it."""
    names = {name for each in needed for name in _NAME.findall(each.parameters + each.body)}
    lines = [match[0] for match in _named(_DEFINE, source, names)] + \
        [match[0] for match in _named(_CONSTANT, _outside(source), names)]
    bodies = [f"template <{each.template}>\n{each.head} {each.name}({each.parameters}) {each.body}"
              if each.template else f"{each.head} {each.name}({each.parameters}) {each.body}"
              for each in needed]
    code = in_double("\n".join([*lines, "", "\n\n".join(bodies)]))
    types = [part.partition("=")[0] for part in split_parts(in_double(function.parameters))]
    given = ", ".join(f"({_type(part)}){value}" for part, value in zip(types, values, strict=True))
    taken = ", ".join(f"{C_NAMES['float64' if 'float' in arg.dtype else arg.dtype]} "
                      f"{'*' * (arg.shape is not None)}{arg.name}" for arg in kernel.args)
    return f"""// {function.name} of the program, every float as a double: the reference of a task.
{INCLUDES}
namespace program {{
{code}
}}  // namespace program

extern "C" void {function.name}({taken}) {{
    program::{function.name}({given});
}}
"""


def in_double(code: str) -> str:
    """Return C code with every float as a double."""
    code = _ON_DEVICE.sub("", code)
    code = re.sub(r"\brestrict\b", "__restrict__", re.sub(r"\bfloat\b", "double", code))
    code = re.sub(r"\b(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[fF]\b", r"\1", code)
    return re.sub(r"\b(\w+)f(?=\s*\()", lambda match: match[1] if match[0] in MATH else match[0],
                  code)


def _type(parameter: str) -> str:
    """Return the type of a parameter such as `const double *x` or `double x[4]`."""
    text = re.sub(r"\b(?:__restrict__|__restrict|restrict)\b", " ", parameter).strip()
    is_array = text.endswith("]")
    return re.sub(r"\w+\s*(?:\[\w*\])?$", "", text).strip() + " *" * is_array


def _outside(source: str) -> str:
    """Return a source without comments and the bodies of its functions."""
    text = _COMMENT.sub(" ", source)
    for each in declared(text):
        text = text.replace(each.body, ";")
    return text


def _named(pattern: re.Pattern[str], text: str, names: set[str]) -> list[re.Match[str]]:
    """Return the definitions of names, and of the names that these use, in their order."""
    known = list(pattern.finditer(_COMMENT.sub(" ", text)))
    while more := {name for match in known if match["name"] in names
                   for name in _NAME.findall(match[0])} - names:
        names |= more
    return [match for match in known if match["name"] in names]
