"""Reads the values that the loops of a program give to sizes: tables, lists and steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.discovery.program.host_expression import (
    HostExpressions,
    UnknownValue,
    entries,
    where,
)
from engine.discovery.program.host_program import FIELDS, Frame
from engine.discovery.project.device_sources import closing

MOST_PASSES = 4
MOST_STEPS = 64
_ROWS = re.compile(r"\bsizeof\b|\bsize\s*\(")
"""In the limit of a loop over a table's rows."""
_FOR = re.compile(r"\bfor\s*(?=\()")
_EACH = re.compile(r"(?:const\s+)?[\w:<>]+[\s&*]+(?P<name>\w+)\s*:(?!:)\s*(?P<values>[^;]+)$",
                   re.DOTALL)
_FIRST = re.compile(r"(?:[\w:]+\s+)*(?P<name>\w+)\s*=\s*(?P<value>[^,]+)$")
_LIMIT = re.compile(r"\s*(?P<name>\w+)\s*(?P<sign><=?|!=)\s*(?P<value>.+)$", re.DOTALL)
_STEP = re.compile(r"(?:\+\+\s*\w+|\w+\s*(?:\+\+|(?P<sign>\+|\*|<<)=\s*(?P<value>.+)))\s*$")


def passes(frame: Frame, numbers: HostExpressions) -> Iterator[Frame]:
    """Yield a call's functions once for each of the last passes of their loops."""
    loops = {id(each): {name: values[-MOST_PASSES:] for name, values in _loops(
        each, numbers).items()} for each in _chain(frame)}
    most = max((len(values) for found in loops.values() for values in found.values()), default=0)
    for index in range(most):
        yield _in_pass(frame, loops, index)


def _chain(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.caller


def _in_pass(frame: Frame, loops: Mapping[int, Mapping[str, list[str]]], index: int) -> Frame:
    values = {name: texts[min(index, len(texts) - 1)]
              for name, texts in loops[id(frame)].items() if texts}
    return replace(frame, variables={**frame.variables, **values}, caller=None
                   if frame.caller is None else _in_pass(frame.caller, loops, index))


def _loops(frame: Frame, numbers: HostExpressions) -> dict[str, list[str]]:
    """Return the values that each loop of a function gives to its variable, as texts."""
    found: dict[str, list[str]] = {}
    for match in _FOR.finditer(frame.body):
        head = frame.body[match.end() + 1:closing(frame.body, match.end())]
        if each := _EACH.match(head.strip()):
            table = where(each["values"].strip(), frame)
            found.setdefault(each["name"], entries(table[0] if table else each["values"]))
            found.setdefault(f"{FIELDS}{each['name']}", [f"{FIELDS}{each['values'].strip()}"])
        elif len(parts := [part.strip() for part in head.split(";")]) == 3:
            first, limit, step = (
                pattern.match(part)
                for pattern, part in zip((_FIRST, _LIMIT, _STEP), parts, strict=True))
            if first and limit and step and first["name"] == limit["name"]:
                try:
                    values = _counted(first["value"], limit, step, frame, numbers)
                except UnknownValue:
                    continue
                found.setdefault(first["name"], values)
    return found


def _counted(first: str, limit: re.Match[str], step: re.Match[str], frame: Frame,
             numbers: HostExpressions) -> list[str]:
    """Return the values of a counting loop. Raises UnknownValue."""
    value = int(numbers.number(first, frame))
    by = int(numbers.number(step["value"], frame)) if step["value"] else 1
    if _ROWS.search(limit["value"]):
        last = value + MOST_PASSES
    else:
        last = int(numbers.number(limit["value"], frame)) + (limit["sign"] == "<=")
    values: list[int] = []
    while value < last and len(values) < MOST_STEPS:
        values.append(value)
        following = value * by if step["sign"] == "*" else \
            value << min(by, 62) if step["sign"] == "<<" else value + by
        if following <= value:
            break
        value = following
    return list(map(str, values))

