"""JSON on standard output, one document per line."""

from __future__ import annotations

import msgspec


def print_json(value: object) -> None:
    """Print a value of structs, lists and mappings as one line of JSON."""
    print(msgspec.json.encode(value).decode())
