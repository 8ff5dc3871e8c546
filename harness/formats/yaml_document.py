"""Read and write YAML: plain data of bounded size, with the line of every value.

Scalars follow YAML 1.2's core schema, so `1e-6` is a number, and `no` and `10:30` are text.
Aliases, tags, duplicate keys and second documents are refused: a manifest or task file needs none
of them, and each can mean something else than a reader sees.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
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
    try:
        builder = _Builder(yaml.parse(text, Loader=yaml.SafeLoader), where)
        top = builder.document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        what = f"is no plain text (character U+{code:04X})"
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
    if not isinstance(top, dict):
        raise InputError(f"expected a mapping (`key: value` lines), got {kind(top)}",
                         where=f"{where}:1")
    return Document(top, builder.lines, where)


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

    def __init__(self, events: Iterator[yaml.Event], where: str) -> None:
        self.events, self.where = events, where
        self.lines: dict[Key, int] = {}

    def document(self) -> Any:
        """Return the top-level value."""
        top, documents = None, 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.error("a second document starts here, only one is allowed", event)
            elif isinstance(event, yaml.NodeEvent):
                top = self.value(event, ())
        if not documents:
            raise InputError("is empty", where=self.where)
        return top

    def value(self, event: yaml.Event, at: Key) -> Any:
        """Return the value that begins with an event, at a place in the document."""
        self.refuse_alias_and_tag(event)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if len(at) >= MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.MappingStartEvent):
            mapping: dict[str, Any] = {}
            while not isinstance(event := next(self.events), yaml.MappingEndEvent):
                key = self.key(event, at)
                mapping[key] = self.value(next(self.events), (*at, key))
            return mapping
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            place = (*at, len(items))
            items.append(self.value(event, place))
            self.lines[place] = _line(event)
        return items

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        is_plain = event.implicit[0]
        is_long = len(event.value) > 30 and is_plain and _INT.fullmatch(event.value)
        value = scalar(event.value) if is_plain and not is_long else event.value
        if is_long or (isinstance(value, int) and abs(value) >= 2**63) \
                or (isinstance(value, float) and not math.isfinite(value)):
            raise self.error("the number is too large", event)
        if isinstance(value, str) and "\0" in value:
            raise self.error("the text holds a NUL character", event)
        if isinstance(value, str) and _SURROGATE.search(value):
            raise self.error("the text holds a lone surrogate", event)
        return value

    def key(self, event: yaml.Event, at: Key) -> str:
        """Return a key of the mapping at a place."""
        self.refuse_alias_and_tag(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise self.error("a key must be plain text", event)
        if _SURROGATE.search(event.value):
            raise self.error("a key holds a lone surrogate", event)
        key = str(event.value)
        if first := self.lines.get((*at, key)):
            raise self.error(f"key {key!r} is already given in line {first}", event)
        self.lines[(*at, key)] = _line(event)
        return key

    def refuse_alias_and_tag(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self.error(f"the alias *{event.anchor} is not allowed: write the value out",
                             event)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise self.error(f"the tag {tag} is not allowed", event)

    def error(self, what: str, event: yaml.Event) -> InputError:
        return InputError(what, where=f"{self.where}:{_line(event)}")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _hint(problem: str) -> str:
    if r"'\t'" in problem:
        return "indent with spaces, not tabs"
    if "cannot start any token" in problem or "indentation indicators" in problem:
        return "put the text in quotes"
    return ""


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
