"""Read and write YAML: plain data of bounded size, with the line of every value.

Scalars follow YAML 1.2's core schema, so `1e-6` is a number, and `no` and `10:30` are text.
Aliases, tags, duplicate keys and second documents are refused: a manifest or task file needs none
of them, and each can mean something else than a reader sees.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import InputError

MAX_BYTES = 128 * 1024
MAX_DEPTH = 20

Key = tuple[str | int, ...]
"""The place of a value: the keys and indices that lead to it from the top."""

_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BEYOND = re.compile(r"\\U(?!0010|000[0-9a-fA-F])[0-9a-fA-F]{8}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}


@dataclass(frozen=True)
class Document:
    """A parsed YAML file: its mapping, the line of each key and item, its name in errors."""

    value: dict[str, Any]
    lines: dict[Key, int]
    where: str

    def at(self, key: Key) -> str:
        """Return `where:line` of a value, or of the nearest value above it that has a line."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.where}:{self.lines.get(key, 1)}"


def read(path: Path) -> Document:
    """Read a YAML file. Raises InputError in one line for anything wrong with it."""
    where = str(path)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist or is no plain file"
            raise InputError(f"{what}, a YAML file was expected", where=where)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from error
    try:
        return parse(raw.decode("utf-8-sig"), where)
    except UnicodeDecodeError as error:
        if len(raw) > MAX_BYTES and error.start >= MAX_BYTES - 4:
            raise _too_large(where) from error
        what = f"is no UTF-8 text (byte 0x{raw[error.start]:02x} at offset {error.start})"
        raise InputError(what, where=where) from error


def parse(text: str, where: str) -> Document:
    """Parse YAML text whose top level is a mapping; `where` names it in errors."""
    if len(text) > MAX_BYTES:
        raise _too_large(where)
    builder = _Builder(where)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.take(event)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"is no plain text (character U+{_codepoint(error):04X})"
        raise InputError(what, where=f"{where}:{line}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = str(error.problem or error.context)
        raise InputError(f"not YAML: {problem}", where=f"{where}:{line}",
                         fix=_hint(problem)) from error
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise InputError("is no plain text (a lone surrogate)", where=f"{where}:{line}") from error
    except (ValueError, OverflowError) as error:  # chr() raises these for an escape
        beyond = _BEYOND.search(text)
        line = text.count("\n", 0, beyond.start() if beyond else 0) + 1
        raise InputError("not YAML: an escape beyond U+10FFFF", where=f"{where}:{line}") from error
    if not builder.documents:
        raise InputError("is empty", where=where)
    if not isinstance(builder.top, dict):
        raise InputError(f"expected a mapping (`key: value` lines), got {kind(builder.top)}",
                         where=f"{where}:1")
    return Document(builder.top, builder.lines, where)


def scalar(text: str) -> Any:
    """Return the value of a plain scalar: None, a boolean, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text.startswith(("0x", "0o")) else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def kind(value: object) -> str:
    """Return the kind of a parsed value in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value if len(value) < 40 else value[:37] + '...'!r}"
    return "a list" if isinstance(value, list) else "a mapping"


class _Builder:
    """Builds the value of one document from parse events, with the line of every part."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.documents = 0
        self.top: Any = None
        self.lines: dict[Key, int] = {}
        self.path: list[str | int] = []
        self.open: list[dict[str, Any] | list[Any]] = []
        self.key: str | None = None

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.error("a second document starts here, only one is allowed", line)
        elif isinstance(event, yaml.AliasEvent):
            raise self.error(f"the alias *{event.anchor} is not allowed: write the value out", line)
        elif isinstance(event, yaml.ScalarEvent):
            self.scalar(event, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.start(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
            if self.path:
                self.path.pop()

    def scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        self.refuse_tag(event, line)
        if self.open and isinstance(self.open[-1], dict) and self.key is None:
            self.take_key(event.value, line)
            return
        plain = event.implicit[0]
        if len(event.value) > 30 and plain and _INT.fullmatch(event.value):
            raise self.error("the number is too large", line)
        value = scalar(event.value) if plain else event.value
        if isinstance(value, int) and abs(value) >= 2**63:
            raise self.error("the number is too large", line)
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error("the number is too large", line)
        if isinstance(value, str) and "\0" in value:
            raise self.error("the text holds a NUL character", line)
        if isinstance(value, str) and _SURROGATE.search(value):
            raise self.error("the text holds a lone surrogate", line)
        self.place(value, line)

    def start(self, event: yaml.CollectionStartEvent, line: int) -> None:
        self.refuse_tag(event, line)
        if self.open and isinstance(self.open[-1], dict) and self.key is None:
            raise self.error("a key must be plain text", line)
        if len(self.open) >= MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", line)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        key = self.place(value, line)
        if self.open:
            self.path.append(key)
        self.open.append(value)

    def take_key(self, key: str, line: int) -> None:
        inside = self.open[-1]
        if _SURROGATE.search(key):
            raise self.error("a key holds a lone surrogate", line)
        if key in inside:
            first = self.lines[(*self.path, key)]
            raise self.error(f"key {key!r} is already given in line {first}", line)
        self.key = key
        self.lines[(*self.path, key)] = line

    def place(self, value: Any, line: int) -> str | int:
        """Insert a value into the open collection and return its key or index."""
        if not self.open:
            self.top = value
            return ""
        inside = self.open[-1]
        if isinstance(inside, list):
            inside.append(value)
            self.lines[(*self.path, len(inside) - 1)] = line
            return len(inside) - 1
        key, self.key = self.key or "", None
        inside[key] = value
        return key

    def refuse_tag(self, event: yaml.NodeEvent, line: int) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            raise self.error(f"the tag {tag} is not allowed", line)

    def error(self, what: str, line: int) -> InputError:
        return InputError(what, where=f"{self.where}:{line}")


def _hint(problem: str) -> str:
    if r"'\t'" in problem:
        return "indent with spaces, not tabs"
    if "cannot start any token" in problem or "indentation indicators" in problem:
        return "put the text in quotes"
    return ""


def _codepoint(error: yaml.reader.ReaderError) -> int:
    character = error.character
    return character if isinstance(character, int) else ord(character)


def _too_large(where: str) -> InputError:
    return InputError(f"is larger than {MAX_BYTES // 1024} KiB", where=where)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `scalar` would not read back as text; the top level is a block."""

    def represent(self, data: object) -> None:
        node = self.represent_data(data)
        if isinstance(node, yaml.CollectionNode):
            node.flow_style = False
        self.serialize(node)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if isinstance(scalar(text), str) and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(value: dict[str, Any]) -> str:
    """Return YAML text that `parse` reads back as the same value."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96,
                     default_flow_style=None)
    return str(text)
