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
    split_parts,
)
from harness.tasks.target import DTYPE_BYTES

MOST_FRAMES = 5
BYTES = {name: DTYPE_BYTES[dtype] for name, dtype in TYPES.items()} | {
    "half2": 4, "__half2": 4, "float2": 8, "float4": 16, "int4": 16}
"""The size of each type; that of a vector is not that of its elements."""
RETURNED = "returned_"
"""The variable that stands for what a function returns."""
_ASSIGNED = re.compile(r"^(?:.*?[\s*&(])?(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.+)$",
                       re.DOTALL)
_LOOPED = re.compile(r"\bfor\s*\(\s*(?:[\w:]+[\s&*]+)?([A-Za-z_]\w*)\s*[=:]")
_DIM3 = re.compile(r"\bdim3\s+([^;=]*);")
_SIZES = re.compile(r"^(?P<name>\w+)\s*[({](?P<sizes>.*)[)}]$", re.DOTALL)
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
        for frame in _frames(caller, program, MOST_FRAMES):
            yield HostCall(site.values, site.launch, frame)


def returning(value: str, frame: Frame, program: str) -> Frame | None:
    """Return the frame of the function that the text `value` calls; RETURNED holds its result.

    None if the text is no call of a function of the program.
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
            instance = re.sub(r"\s+", "", match["instance"] or "")
            if instance == f"{bracket}{rest}" or (instance and not bracket and not match["launch"]):
                end = closing(function.body, match.end())
                yield _Site(tuple(split_parts(function.body[match.end() + 1:end])),
                            tuple(split_parts(match["launch"]))[:3] if match["launch"] else ()
                            ), function.name


def _frames(name: str, program: str, depth: int) -> Iterator[Frame]:
    """Yield a function once for each of its callers, and once if it has none."""
    function = next(each for each in _functions(program) if each.name == name)
    body, called = function.body, False
    if depth > 0 and name != "main":
        for site, caller in _sites(name, program):
            for frame in _frames(caller, program, depth - 1):
                called = True
                yield Frame(body, _variables(body), _passed(function, site.values), frame)
    if not called:
        around = program
        for each in _functions(program):
            around = around.replace(each.body, ";")
        yield Frame(body, _variables(body), {}, Frame(around, _variables(around), {}, None))


def _passed(function: DeclaredFunction, values: Sequence[str]) -> dict[str, str]:
    """Return the values of a function's parameters by name; those not passed have their default."""
    passed: dict[str, str] = {}
    for n, part in enumerate(split_parts(function.parameters)):
        head, _, default = part.partition("=")
        words = re.sub(r"[*&]|\[\w*\]", " ", head).split()
        value = values[n] if n < len(values) else default.strip()
        if words and value:
            passed[words[-1]] = value
    return passed


def _variables(body: str) -> dict[str, str]:
    """Return the first value of each variable that is no loop's counter.

    The value is "", which means unknown, if the first assignment uses the variable itself.
    """
    looped = set(_LOOPED.findall(body))
    values = {match["name"]: f"dim3({match['sizes']})" for dims in _DIM3.findall(body)
              for part in split_parts(dims) if (match := _SIZES.match(part.strip()))}
    for statement in re.split(r"[;{}]", body):
        for part in split_parts(statement):
            match = _ASSIGNED.match(part.strip())
            if match and match["name"] not in looped:
                name, value = match["name"], match["value"].strip()
                values.setdefault(name, "" if re.search(rf"\b{name}\b", value) else value)
    return values


def _rest(text: str, start: int) -> str:
    """Return the text from `start` to the bracket that closes the one around it."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if depth < 0:
            return text[start:index]
    return text[start:]
