"""JSON on standard output, one document a line."""

from __future__ import annotations

import msgspec


def emit(value: object) -> None:
    """Print a value of structs, lists and mappings as one line of JSON."""
    print(msgspec.json.encode(value).decode())


def body(recorded: bytes) -> object:
    """Return recorded JSON as a value, None if it cannot be read."""
    try:
        value: object = msgspec.json.decode(recorded)
    except msgspec.DecodeError:
        return None
    return value
