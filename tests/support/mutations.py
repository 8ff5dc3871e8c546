"""Deterministic mutations of the values and bytes of small documents."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import yaml

DEEP: Any = "bottom"
for _ in range(40):
    DEEP = {"a": [DEEP]}
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, -2**63 - 1, 10**30, 10**400, 0.5, -0.0, 1e308,
    1e-320, float("inf"), float("-inf"), float("nan"), "", " ", "0", "-1", "1e999", "nan", ".inf",
    "null", "a", "n", "n*n*n*n*n*n", "n/0", "n//7", "-n", "(n", "9" * 400, "1" + "*n" * 90,
    "(" * 90 + "n" + ")" * 90, "-" * 190 + "1", "n if n else 1", "__import__('os')", "1_000",
    "0x10", "x" * 5000, "ü", "\u202e\u2066", "\u2028", "\x1b[31mred\x1b[0m", "a\x00b", "a\nb: c",
    "\ud800", "\U0010ffff", "../..", "/", "~", ".", "..", "*", "**", "[", "[a", "{prompt}", "{0}",
    "{", "%s", "$(id)", "'", '"', "-", "--", "-x", "a:b", "a:", ":a", "HEAD", "cpu", "cuda:0",
    "cuda:99", "command", "schedule", "inout", "float16", "float8_e5m2", "int8", [], {}, [[]],
    [None], [0], ["a", "a"], [["a"]], {"": 1}, {"a": {"b": 1}}, {"n": 0}, {"n": -3}, {"n": 2**40},
    {"m": 3}, {"n": 2.0}, DEEP, ["x"] * 400)
"""What a value may be replaced by."""
KEYS = ("", " ", "x", "A", "name ", "naïve", "a.b", "0", "-1", "null", "~", "__class__", "type",
        "target_opp", "\u202e", "\x07", "k" * 300, "$", "`", "[...]", "a\nb", "*", "&a", "? a")
SCRAPS = (b"\t", b"\n\t", b"\0", b"\x7f", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf",
          b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"&a ", b"*a", b"\na: &a [*a]\n",
          b"\n<<: *a\n", b"\n<<: {a: 1}\n", b"!!python/object/apply:os.system [id]", b"!!binary x",
          b"!x ", b"\n---\n", b"\n...\n", b"\n--- {}\n", b"%YAML 9.9\n---\n", b"%TAG ! a\n", b"? ",
          b"\n? [a]\n: b\n", b"- ", b": ", b"#", b"|\n", b">-9\n", b"@", b"`", b"'", b'"', b"{",
          b"}", b"[", b"]", b",", b'"\\ud800"', b'"\\x00"', b'"\\U00110000"', b"[" * 3000,
          b"{a: " * 200, b"- " * 3000, b"? " * 500, b"x" * 20_000, b" " * 20_000, b"\n" * 5000,
          b"0" * 5000, b"1e99999", b".nan", b"-.inf", b"0o9", b"1:30:00", b"NaN", b"Infinity", b"-",
          b"+", b'"\\UFFFFFFFF"')
"""Bytes that may be inserted."""

Rng = random.Random


def structured(rng: Rng, document: Any) -> Any:
    """Return the document with one to three of its parts changed."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder = rng.choice(_holders(changed))
        if isinstance(holder, dict):
            _change_mapping(rng, holder)
        else:
            _change_list(rng, holder)
    return changed


def _holders(value: Any) -> list[Any]:
    """Return the non-empty mappings and lists in a value, at most 200; a new one if there is none.
    """
    holders = [value] if isinstance(value, dict | list) and value else []
    for part in value.values() if isinstance(value, dict) else \
            value if isinstance(value, list) else ():
        holders += _holders(part)
    return holders[:200] or [{"": None}]


def _change_mapping(rng: Rng, holder: dict[Any, Any]) -> None:
    key = rng.choice(list(holder))
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[rng.choice(KEYS)] = holder.pop(key)
    elif kind == 2:
        holder[rng.choice(KEYS)] = rng.choice(VALUES)
    elif kind == 3:
        holder[key] = _retyped(rng, holder[key])
    else:
        holder[key] = copy.deepcopy(rng.choice(VALUES))


def _change_list(rng: Rng, holder: list[Any]) -> None:
    at = rng.randrange(len(holder))
    kind = rng.randrange(5)
    if kind == 0:
        del holder[at]
    elif kind == 1:
        holder.insert(at, copy.deepcopy(holder[at]))
    elif kind == 2:
        holder.reverse()
    else:
        holder[at] = copy.deepcopy(rng.choice(VALUES))


def _retyped(rng: Rng, value: Any) -> Any:
    return rng.choice(([value], {"value": value}, str(value), [value] * 3, value is None,
                       {str(value)[:40]: value}))


def text(rng: Rng, document: bytes) -> bytes:
    """Return the bytes with parts removed, inserted, doubled or reversed."""
    changed = document
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed = rng.choice(TEXTUAL)(rng, changed)
    return changed


def _at(rng: Rng, original: bytes) -> int:
    return rng.randrange(len(original) + 1)


def _cut(rng: Rng, original: bytes) -> bytes:
    return original[:_at(rng, original)]


def _out(rng: Rng, original: bytes) -> bytes:
    at = _at(rng, original)
    return original[:at] + original[at + rng.choice((1, 2, 9, 40)):]


def _scrap(rng: Rng, original: bytes) -> bytes:
    at = _at(rng, original)
    return original[:at] + rng.choice(SCRAPS) + original[at:]


def _byte(rng: Rng, original: bytes) -> bytes:
    at = _at(rng, original)
    return original[:at] + bytes([rng.randrange(256)]) + original[at + 1:]


def _lines(rng: Rng, original: bytes) -> bytes:
    lines = original.split(b"\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(to, lines[at])
    elif kind == 1:
        lines[at], lines[to] = lines[to], lines[at]
    elif kind == 2:
        lines[at] = rng.choice((b" ", b"\t", b"   ", b"- ", b"? ")) + lines[at]
    else:
        del lines[at]
    return b"\n".join(lines)


def _whole(rng: Rng, original: bytes) -> bytes:
    return rng.choice((
        b"", b" ", b"\n\n", b"null", b"[]", b"{}", b"3", b'"x"', original * 2, original * 60,
        original.decode("latin-1").encode("utf-16"), b"\xef\xbb\xbf" + original,
        original.replace(b"\n", b"\r\n"), original.replace(b"\n", b"\r"), original[::-1],
        original.replace(b" ", b"\t"), original.replace(b":", b""), b"[" + original, b"x" * 140_000,
        b"x: " + b"y" * 100_000, b"k: 1\n" * 20_000, b"\x7fELF" + bytes(range(256)),
        rng.randbytes(300)))


TEXTUAL: tuple[Callable[[Rng, bytes], bytes], ...] = (
    _cut, _out, _scrap, _scrap, _scrap, _byte, _byte, _lines, _lines, _whole)


def as_yaml(document: Any) -> bytes:
    """Return a document as block YAML, or as JSON if YAML cannot express it."""
    try:
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        return as_json(document)


def as_json(document: Any) -> bytes:
    """Return a document as JSON, with NaN, Infinity and lone surrogates where it has them."""
    return json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")
