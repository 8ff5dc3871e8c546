"""Reads rows from the lines that a program prints for people: `n=1024  time: 3.2 ms  PASS`.

Each line gives named values. A name that comes again begins the next row; a value that is printed
once belongs to every row.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

CHECK = "check"
"""The column of words such as PASS that are printed without a name."""
MOST_WORDS = 6
"""A line of more words without a number says nothing about the result."""
Field = tuple[str, str]
_NUMBER = re.compile(
    r"(?<![\w.-])([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?:\s*([A-Za-zµμ]+(?:/[a-z]+)?))?")
_WORD = re.compile(r"(?<!\w)[^\W\d]\w*")
_NAMED_WORD = re.compile(r"\s*([A-Za-z][\w -]*?)\s*[:=]\s*([A-Za-z]+)[.!]?\s*")
_RIGHT = frozenset(("pass", "passed", "ok", "correct"))
_WRONG = frozenset(("fail", "failed", "failure", "wrong", "incorrect", "mismatch", "not"))
_RULE = re.compile(r"[-=+|\s]+")


def is_table(text: str) -> bool:
    """Return whether each line has as many commas as the others, and at least one."""
    commas = {line.count(",") for line in text.splitlines() if line.strip()}
    return len(commas) == 1 and 0 not in commas


def rows(text: str, units: Collection[str]) -> list[list[str]]:
    """Return a header and rows; empty if no line gives a number. `units` are in lower case."""
    fields = [field for line in _lines(text.splitlines(), units) for field in line]
    count = Counter(name for name, _ in fields)
    is_repeated = any(times > 1 for times in count.values())
    common = {name: value for name, value in fields if is_repeated and count[name] == 1}
    table: list[dict[str, str]] = []
    for name, value in fields:
        if name in common:
            continue
        if not table or name in table[-1]:
            table.append({})
        table[-1][name] = value
    names = list(dict.fromkeys(name for name, _ in fields))
    return [names, *([row.get(name, common.get(name, "")) for name in names] for row in table)] \
        if any(_NUMBER.fullmatch(value) for _, value in fields) else []


def _lines(lines: Sequence[str], units: Collection[str]) -> Iterator[list[Field]]:
    """Yield the fields of each line; lines below a header of columns are rows of a table."""
    header: list[str] = []
    for at, line in enumerate(lines):
        cells = _cells(line)
        if header and len(cells) == len(header) and any(map(_NUMBER.fullmatch, cells)):
            yield list(zip(header, cells, strict=True))
            continue
        if header and _RULE.fullmatch(line):
            continue
        below = next((other for other in lines[at + 1:] if not _RULE.fullmatch(other)), "")
        header = cells if _is_header(cells, _cells(below), units) else []
        if not header:
            yield list(dict(_fields(line, units)).items())


def _cells(line: str) -> list[str]:
    parts = re.split(r"[,|]" if re.search(r"[,|]", line) else r"\s{2,}|\t", line.strip(" |"))
    cells = [part.strip() for part in parts]
    return cells if len(cells) > 1 else line.split()


def _is_header(cells: Sequence[str], below: Sequence[str], units: Collection[str]) -> bool:
    return len(cells) == len(below) > 1 and len(set(cells)) == len(cells) \
        and not any(map(_NUMBER.search, cells)) and any(map(_NUMBER.fullmatch, below)) \
        and any(word in units for cell in cells
                for word in re.split(r"[^a-zµμ/]+", cell.casefold()))


def _fields(line: str, units: Collection[str]) -> Iterator[Field]:
    """Yield the names and values that a line gives."""
    if line.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            yield from ((name, str(value)) for name, value in json.loads(
                line, parse_float=str, parse_int=str, parse_constant=str).items()
                if not isinstance(value, list | dict))
        return
    if named := _NAMED_WORD.fullmatch(line):
        yield named[1], named[2]
        return
    end, unnamed, words = 0, 0, list[str]()
    for match in _NUMBER.finditer(line):
        unit = match[2] if match[2] and match[2].casefold() in units else ""
        value_end = match.end() if unit else match.end(1)
        if re.match(r"\w|\.\d", line[value_end:]):
            continue  # a part of a word, such as 512x512
        before = _WORD.findall(line[end:match.start()])
        words += [word for word in before if word.casefold() in _RIGHT | _WRONG]
        name = " ".join([*(word for word in before if word not in words), unit]).strip()
        if not name:
            unnamed += 1
            name = f"value {unnamed}"
        yield name, match[1]
        end = value_end
    words += [word for word in _WORD.findall(line[end:]) if word.casefold() in _RIGHT | _WRONG]
    if end or len(_WORD.findall(line)) < MOST_WORDS:
        wrong = [word for word in words if word.casefold() in _WRONG]
        yield from [(CHECK, word) for word in (wrong or words)[:1]]
