"""JSON on standard output, one document per line."""

from __future__ import annotations

import msgspec


def print_json(value: object) -> None:
    """Print a value of structs, lists and mappings as one line of JSON."""
    print(msgspec.json.encode(value).decode())


def decode_json(recorded: bytes) -> object:
    """Return recorded JSON as a value, None if it cannot be read."""
    try:
        value: object = msgspec.json.decode(recorded)
    except msgspec.DecodeError:
        return None
    return value
