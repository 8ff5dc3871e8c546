"""Read and write YAML: plain data of bounded size, with the line of every value.

Aliases, tags, duplicate keys and second documents are refused: a manifest or task file needs none
of them, and each can mean something else than a reader sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.formats.yaml_values import Key

MAX_BYTES = 128 * 1024


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


SOURCES = (".py", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".hip", ".h")
"""Suffixes of kernels' sources, which people give where a manifest belongs."""


def read(path: Path) -> Document:
    """Read a YAML file. Raises InputError with a one-line message."""
    where = str(path)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist or is not a plain file"
            raise InputError(f"{what}, a YAML file was expected", where=where)
        if path.suffix in SOURCES:
            raise InputError("is a kernel's source, not YAML", where=where,
                             fix=f"kopt new {path.name} writes a manifest for it")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from error
    try:
        return parse(raw.decode("utf-8-sig"), where)
    except UnicodeDecodeError as error:
        if len(raw) > MAX_BYTES and error.start >= MAX_BYTES - 4:
            raise _too_large(where) from error
        what = f"is not UTF-8 text (byte 0x{raw[error.start]:02x} at offset {error.start})"
        raise InputError(what, where=where) from error


@lru_cache(maxsize=16)
def parse(text: str, where: str) -> Document:
    """Parse YAML text whose top level is a mapping; `where` names it in errors.

    The last documents are cached: do not change a document's value.
    """
    if len(text) > MAX_BYTES:
        raise _too_large(where)
    from harness.formats import yaml_events  # loads PyYAML

    top, lines = yaml_events.build(text, where)
    if not isinstance(top, dict):
        raise InputError(f"expected a mapping (`key: value` lines), got {kind(top)}",
                         where=f"{where}:1")
    return Document(top, lines, where)


def kind(value: object) -> str:
    """Return in words what a parsed value is, for errors: `a list`, `the number 3`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value if len(value) < 40 else value[:37] + '...'!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def dump(value: dict[str, Any]) -> str:
    """Return YAML text that `parse` reads back as the same value."""
    from harness.formats import yaml_events  # loads PyYAML

    return yaml_events.dump(value)


def _too_large(where: str) -> InputError:
    return InputError(f"is larger than {MAX_BYTES // 1024} KiB", where=where)
