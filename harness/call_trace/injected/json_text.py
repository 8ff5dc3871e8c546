"""Writes JSON without the json module, which the program may shadow."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def line(value: dict[str, Any]) -> bytes:
    """Return a line of JSON."""
    inside = ",".join(f"{_json(key)}:{_json(one)}" for key, one in value.items())
    return f"{{{inside}}}\n".encode("ascii")


def _json(value: Any) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(map(_json, value)) + "]"
    if type(value) is float:
        return repr(value)
    return str(int(value))


def _escaped(character: str) -> str:
    code = ord(character)
    if 32 <= code < 127 and character not in '"\\':
        return character
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xd800 + (code - 0x10000 >> 10):04x}\\u{0xdc00 + (code & 0x3ff):04x}"
