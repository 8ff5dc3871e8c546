"""Reads the host code of a C or CUDA program: calls of a function, variables, allocations.

Only the text is read: functions of the same name count as one, and so do variables of one function.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.discovery.project.device_sources import (
    TYPES,
    DeclaredFunction,
    closing,
    declared,
    instance_at,
    split_parts,
)
from harness.tasks.target import DTYPE_BYTES

MOST_FRAMES = 5
BYTES = {name: DTYPE_BYTES[dtype] for name, dtype in TYPES.items()} | {
    "half2": 4, "__half2": 4, "float2": 8, "float4": 16, "int4": 16}
"""The size of each type; that of a vector is not that of its elements."""
FIELDS = "fields of "
"""Before the name of a struct or a table: the variable that names its fields."""
KEYWORDS = ("dim3", "struct", "class", "union", "enum", "namespace", "else", "do", "return")
RETURNED = "returned_"
"""The variable that stands for what a function returns."""
_ASSIGNED = re.compile(r"^(?:.*?[\s*&(])?(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.+)$",
                       re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_PLAIN = re.compile(r"^(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.+)$", re.DOTALL)
_LOOPED = re.compile(r"\bfor\s*\(\s*(?:[\w:]+[\s&*]+)?([A-Za-z_]\w*)\s*[=:]")
_DIM3 = re.compile(r"\bdim3\s+([^;=]*);")
_SIZES = re.compile(r"^(?P<name>\w+)\s*[({](?P<sizes>.*)[)}]$", re.DOTALL)
_POINTER = re.compile(r"\(\s*\*\s*(?P<name>\w+)\s*\)\s*\(")
_AXIS = re.compile(r"\b(?P<name>\w+)\.(?P<axis>[xyz])\s*=(?!=)\s*(?P<value>[^;]+);")
_TABLE = re.compile(r"(?:\b(?P<type>\w+)|[>}])\s+(?P<name>\w+)\s*"
                    r"(?:(?:\[[^\]]*\]\s*)+=?|=)?\s*(?=\{)")
_STRUCT = re.compile(r"\bstruct\s*(?P<type>\w*)\s*\{(?P<fields>[^{}()]*)\}\s*(?P<name>\w*)")
_CALLED = re.compile(r"^(?:\([^()]*\)\s*)?(?P<name>[A-Za-z_]\w*)\s*(?=\()")


@dataclass(frozen=True)
class Frame:
    """A host function in the chain of calls that leads to the kernel, with its names' values."""

    body: str
    variables: Mapping[str, str]
    passed: Mapping[str, str]
    """The caller's text for each parameter."""
    caller: Frame | None


@dataclass(frozen=True)
class HostCall:
    """One call of a function: the texts that it passes, and the function that makes it.

    `launch` are the sizes between `<<<` and `>>>`, () for a plain call.
    """

    values: tuple[str, ...]
    launch: tuple[str, ...]
    frame: Frame


def calls(name: str, program: str) -> Iterator[HostCall]:
    """Yield the calls and launches of a function or of a template's instance.

    A call is yielded once for each chain of callers that leads to it.
    """
    for site, caller in _sites(name, program):
        for frame in _frames(caller, program, MOST_FRAMES, site.at):
            yield HostCall(site.values, site.launch, frame)
    for pointer, site, caller in _pointer_sites(name.partition("<")[0], program):
        for frame in _frames(caller, program, MOST_FRAMES, site.at):
            is_set = re.search(rf"\b{pointer}\s*=\s*&?\s*{re.escape(name)}\s*;", frame.body)
            if is_set or frame.passed.get(pointer, "").lstrip("& ") == name:
                yield HostCall(site.values, site.launch, frame)


def returning(value: str, frame: Frame, program: str) -> Frame | None:
    """Return the frame of the function that the text `value` calls; RETURNED holds its result.

    None unless the text calls one of the program's functions.
    """
    match = _CALLED.match(value)
    if match is None:
        return None
    for function in _functions(program):
        if function.name == match["name"]:
            values = split_parts(value[match.end() + 1:closing(value, match.end())])
            body = re.sub(r"\breturn\b", f"{RETURNED} =", function.body)
            return Frame(body, _variables(body), _passed(function, values), frame)
    return None


def allocated(name: str, body: str) -> tuple[str, bool] | None:
    """Return the length of an array that a function allocates, and whether it is in bytes.

    None if the function does not allocate it.
    """
    at, cast = rf"\b{re.escape(name)}\b", r"(?:\([^()]*\)\s*)?"
    for pattern, in_bytes in (
            (r"\b(?:cuda|hip)(?:Malloc\w*|HostAlloc)\s*(?:<[^<>]*>)?"
             rf"\s*\(\s*{cast}&\s*{at}\s*,", True),
            (rf"\bposix_memalign\s*\(\s*{cast}&\s*{at}\s*,[^,]*,", True),
            (rf"{at}\s*=\s*{cast}(?:std::)?(?:malloc\s*\(|aligned_alloc\s*\([^,]*,"
             r"|_mm_malloc\s*\()", True),
            (rf"\b\w*vector\s*<[^<>]*>[^;]*?{at}\s*[({{]", False),
            (rf"{at}\s*=\s*new\s+\w+\s*\[", False)):
        if match := re.search(pattern, body):
            return split_parts(_rest(body, match.end()))[0], in_bytes
    if match := re.search(rf"{at}\s*=\s*{cast}calloc\s*\(", body):
        return "*".join(f"({part})" for part in split_parts(_rest(body, match.end()))[:2]), True
    if match := re.search(rf"\b(?:{'|'.join(BYTES)})\s+[^;(){{}}*]*?{at}\s*"
                          r"((?:\[[^\[\]]+\]\s*)+)[;=,]", body):
        return "*".join(f"({part})" for part in re.findall(r"\[([^\[\]]+)\]", match[1])), False
    return None


@functools.lru_cache(maxsize=2)
def _functions(program: str) -> tuple[DeclaredFunction, ...]:
    return tuple(declared(program))


@dataclass(frozen=True)
class _Site:
    values: tuple[str, ...]
    at: int
    """Where it ends in the body of the function around it."""
    launch: tuple[str, ...] = ()


def _sites(name: str, program: str) -> Iterator[tuple[_Site, str]]:
    """Yield each call of a function, and the name of the function around it."""
    base, bracket, rest = name.partition("<")
    at = re.compile(rf"\b{re.escape(base)}\s*(?P<instance><[^<>;]*>)?\s*"
                    r"(?:<<<(?P<launch>[^;]*?)>>>)?\s*(?=\()")
    for function in _functions(program):
        if function.name == base:
            continue
        for match in at.finditer(function.body):
            given = re.sub(r"\s+", "", match["instance"] or "")
            instance = given if given == f"{bracket}{rest}" else instance_at(
                given, function.body[:match.start()])
            if instance == f"{bracket}{rest}" or (not bracket and not match["launch"]) or (
                    not instance and match["launch"]):  # the compiler deduces it
                end = closing(function.body, match.end())
                yield _Site(tuple(split_parts(function.body[match.end() + 1:end])), end,
                            tuple(split_parts(match["launch"]))[:3] if match["launch"] else ()
                            ), function.name


def _pointer_sites(name: str, program: str) -> Iterator[tuple[str, _Site, str]]:
    """Yield each launch through a pointer to a function, with the pointer and the function around.
    """
    kernels = {function.name for function in _functions(program)}
    for function in _functions(program):
        for pointer in dict.fromkeys(re.findall(r"\b(\w+)\s*<<<", function.body)):
            if pointer not in kernels and re.search(rf"\b{re.escape(name)}\b", program):
                yield from ((pointer, site, caller) for site, caller in _sites(pointer, program)
                            if caller == function.name)


def _frames(name: str, program: str, depth: int, end: int | None = None) -> Iterator[Frame]:
    """Yield a function once for each of its callers, and once if it has none.

    Variables are those of its text up to `end`.
    """
    function = next(each for each in _functions(program) if each.name == name)
    body, called = function.body, False
    variables = _variables(body[:end])
    if depth > 0 and name != "main":
        for site, caller in _sites(name, program):
            for frame in _frames(caller, program, depth - 1):
                called = True
                yield Frame(body, variables, _passed(function, site.values), frame)
    if not called:
        around = program
        for each in _functions(program):
            around = around.replace(each.body, ";")
        yield Frame(body, variables, {}, Frame(around, _variables(around), {}, None))


def _passed(function: DeclaredFunction, values: Sequence[str]) -> dict[str, str]:
    """Return the values of a function's parameters by name; those not passed have their default."""
    passed: dict[str, str] = {}
    for n, part in enumerate(split_parts(function.parameters)):
        head, _, default = part.partition("=")
        pointer = _POINTER.search(head)
        words = [pointer["name"]] if pointer else re.sub(r"[*&]|\[\w*\]", " ", head).split()
        value = values[n] if n < len(values) else default.strip()
        if words and value:
            passed[words[-1]] = value
    return passed


def _variables(body: str) -> dict[str, str]:
    """Return the first value of each variable that is no loop's counter; of `dim3` the last one.

    The value is "", which means unknown, if the first assignment uses the variable itself, or if
    it is 0 until a function gets the variable's address.
    """
    body = _STRING.sub('""', body)
    looped = set(_LOOPED.findall(body))
    values = {match["name"]: f"dim3({match['sizes']})" for dims in _DIM3.findall(body)
              for part in split_parts(dims) if (match := _SIZES.match(part.strip()))}
    for statement in re.split(r"[;{}]", body):
        for part in split_parts(statement):
            names, value = _assigned(part.strip())
            for name in names:
                if name in looped:
                    continue
                if value == "0" and re.search(rf"[(,]\s*&\s*{name}\b", body):
                    value = ""
                if name not in values or part.lstrip().startswith("const"):
                    values[name] = "" if re.search(rf"\b{name}\b", value) else value
    return values | _assigned_dims(body) | _tables(body)


def _tables(body: str) -> dict[str, str]:
    """Return the text `{...}` of each table, and `FIELDS m, n` by a table's or a struct's name."""
    found: dict[str, str] = {}
    for match in _STRUCT.finditer(body):
        fields = [re.split(r"\W+", part.strip())[-1] for line in match["fields"].split(";")
                  for part in line.split(",") if part.strip()]
        found |= {f"{FIELDS}{name}": ", ".join(fields) for name in (match["type"], match["name"])
                  if name}
    for match in _TABLE.finditer(body):
        if match["type"] not in KEYWORDS:
            found[match["name"]] = body[match.end():closing(body, match.end()) + 1]
            if match["type"]:
                found.setdefault(f"{FIELDS}{match['name']}", f"{FIELDS}{match['type']}")
    return found


def _assigned(statement: str) -> tuple[list[str], str]:
    """Return the variables that a statement sets, and their value: of `m = n = 8` both."""
    names: list[str] = []
    while match := _PLAIN.match(statement) or (None if names else _ASSIGNED.match(statement)):
        names.append(match["name"])
        statement = match["value"].strip()
    return names, statement


def _assigned_dims(body: str) -> dict[str, str]:
    """Return the `dim3` variables whose parts are assigned, as in `grid.x = n / 32`."""
    names = {part for dims in _DIM3.findall(body) for part in split_parts(dims)}
    axes: dict[str, dict[str, str]] = {}
    for match in _AXIS.finditer(body):
        if match["name"] in names:
            axes.setdefault(match["name"], {})[match["axis"]] = match["value"].strip()
    return {name: f"dim3({', '.join(values.get(axis, '1') for axis in 'xyz')})"
            for name, values in axes.items()}


def _rest(text: str, start: int) -> str:
    """Return the text from `start` to the bracket that closes the one around it."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if depth < 0:
            return text[start:index]
    return text[start:]
