"""Decode a parsed YAML document into a struct; errors name the line, key and expected type."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from harness.errors import InputError
from harness.formats.json_codec import convert
from harness.formats.text import suggest
from harness.formats.yaml_document import Document, kind
from harness.formats.yaml_values import Key

T = TypeVar("T")

_WORDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false",
          "array": "a list", "object": "a mapping", "null": "nothing"}
_SIGNS = {" of length >= 1": " that is not empty", " of length <=": " no longer than",
          " >=": " of at least", " <=": " of at most", " >": " above", " <": " below"}
_AT = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_strictly = partial(convert, strict=True)
_EXPECTED = re.compile(r"Expected `(?P<types>[^`]*)`(?P<limit>[^,]*)")


def decode(document: Document, type_: type[T],
           converter: Callable[[object, type[T]], T] = _strictly) -> T:
    """Return the document as a struct; `converter` raises ValueError in msgspec's words.

    Raises InputError."""
    try:
        return converter(document.value, type_)
    except ValueError as error:
        raise explain(document, type_, str(error)) from error


def explain(document: Document, type_: type, message: str) -> InputError:
    """Turn the converter's message into one line for the document's author."""
    at = _AT.search(message)
    path = at["path"] if at else ""
    message = message[: at.start()] if at else message
    key = _key(path)
    if unknown := _UNKNOWN.match(message):
        name = unknown["name"]
        fix = _right_place(type_, name) or suggest(name, _fields(type_, key))
        return InputError(f"unknown key {_dotted((*key, name))!r}",
                          where=document.at((*key, name)), fix=fix)
    if missing := _MISSING.match(message):
        return InputError(f"the key {_dotted((*key, missing['name']))!r} is missing",
                          where=document.at(key))
    value = _value(document, key)
    if message.startswith("Invalid enum value"):
        allowed = _choices(type_, key)
        return InputError(f"{_dotted(key)}: {value!r} is not one of {', '.join(allowed)}",
                          where=document.at(key), fix=suggest(str(value), allowed, listed=True))
    expected = _EXPECTED.match(message)
    if expected is None:
        return InputError(f"{_dotted(key)}: {message}", where=document.at(key))
    types = " or ".join(_WORDS.get(name, name) for name in expected["types"].split(" | "))
    if path.endswith("[...]"):
        return InputError(f"{_dotted(key)}: every value must be {types}",
                          where=document.at(key), fix="put it in quotes")
    what = f"expected {types}{_limit(expected['limit'])}, got {kind(value)}"
    return InputError(f"{_dotted(key)}: {what}", where=document.at(key))


def _limit(text: str) -> str:
    """Return a limit in words: " >= 1" becomes " of at least 1"."""
    for sign, words in _SIGNS.items():
        text = text.replace(sign, words)
    return text.rstrip()


def _key(path: str) -> Key:
    return tuple(name or int(index) for name, index in _STEP.findall(path) if name or index)


def _dotted(key: Key) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in key)
    return text.removeprefix(".")


def _value(document: Document, key: Key) -> object:
    value: object = document.value
    for step in key:
        if isinstance(value, dict) or (isinstance(value, list) and isinstance(step, int)):
            value = value[step]  # type: ignore[index]
    return value


def _types_at(type_: Any, key: Key) -> list[Any]:
    """Return the types that are allowed at a key, with unions split."""
    types = _alternatives(type_)
    for step in key:
        inner: list[Any] = []
        for outer in types:
            if get_origin(outer) in (tuple, list) and isinstance(step, int):
                inner += _alternatives(get_args(outer)[0])
            elif isinstance(outer, type) and isinstance(step, str):
                inner += _alternatives(get_type_hints(outer).get(step))
        types = inner
    return types


def _alternatives(type_: Any) -> list[Any]:
    if get_origin(type_) in (Union, UnionType):
        return [kind_ for part in get_args(type_) for kind_ in _alternatives(part)]
    return [type_]


def _fields(type_: type, key: Key) -> list[str]:
    return [name for struct in _types_at(type_, key) if isinstance(struct, type)
            for name, hint in get_type_hints(struct).items() if get_origin(hint) is not ClassVar]


def _right_place(type_: type, name: str) -> str:
    """Return where a key of this name belongs; "" if nowhere or in several places."""
    top = _fields(type_, ())
    places = ["at the top level"] if name in top else [
        f"in {outer}" for outer in top if name in _fields(type_, (outer,))]
    return f"it belongs {places[0]}" if len(places) == 1 else ""


def _choices(type_: type, key: Key) -> list[str]:
    return [str(value) for literal in _types_at(type_, key)
            if get_origin(literal) is Literal for value in get_args(literal)]
