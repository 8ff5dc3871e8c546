"""Convert between dataclasses and JSON with strict types, as msgspec does.

The harness may import no msgspec, so this module follows its rules and messages: ints become
floats where those are expected and nothing else is coerced, unknown keys are ignored unless
`strict`, and numbers that are not finite become null. A dataclass with a TAG is identified by its
"type" key.
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, overload

T = TypeVar("T")
NAMES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}


class ConvertError(ValueError):
    """A value does not fit its type; the message ends with its place: ` - at `$.key[0]``."""


def to_builtins(value: object) -> Any:
    """Return the value as dicts, lists, strings, finite numbers, true, false and null."""
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = getattr(value, "TAG", None)
        fields = {field.name: to_builtins(getattr(value, field.name))
                  for field in dataclasses.fields(value)}
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(value, Mapping):
        return {key: to_builtins(inner) for key, inner in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [to_builtins(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def to_json(value: object) -> bytes:
    """Return the value as compact JSON."""
    return json.dumps(to_builtins(value), separators=(",", ":"), ensure_ascii=False,
                      allow_nan=False).encode("utf-8", "surrogatepass")


def loads(data: bytes | str) -> Any:
    """Parse strict JSON. Raises ConvertError for anything else."""
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"JSON is malformed: {error}") from None


@overload
def from_json(data: bytes | str, type_: type[T]) -> T: ...


@overload
def from_json(data: bytes | str, type_: UnionType) -> Any: ...


def from_json(data: bytes | str, type_: Any) -> Any:
    """Return JSON as a value of the wanted type. Raises ConvertError."""
    return convert(loads(data), type_)


def convert(value: object, type_: type[T], *, strict: bool = False) -> T:
    """Convert JSON values to a type; `strict` refuses unknown keys. Raises ConvertError.

    A ValueError raised by a dataclass becomes a ConvertError.
    """
    result: T = _convert(value, type_, "$", strict)
    return result


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _convert(value: Any, type_: Any, at: str, strict: bool) -> Any:
    if type_ is Any or type_ is object:
        return value
    origin, inside = get_origin(type_), get_args(type_)
    if origin is Union or origin is UnionType:
        return _one_of(value, inside, at, strict)
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in inside):
            return value
        raise ConvertError(_expected(type_, value, at) if not isinstance(value, str)
                           else f"Invalid enum value {value!r}{_at(at)}")
    if type_ is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ConvertError(f"Number out of range{_at(at)}") from None
    if type_ in NAMES:
        if type(value) is type_:
            return value
    elif origin in (tuple, list) and isinstance(value, list | tuple):
        return _sequence(value, origin, inside, at, strict)
    elif isinstance(origin or type_, type) and issubclass(origin or type_, Mapping) \
            and isinstance(value, dict):
        return {_convert(key, inside[0], f"{at}[...]", strict):
                _convert(inner, inside[1], f"{at}[...]", strict)
                for key, inner in value.items()} if inside else value
    elif dataclasses.is_dataclass(type_) and isinstance(value, dict):
        return _build(value, type_, at, strict)
    raise ConvertError(_expected(type_, value, at))


def _sequence(value: Sequence[Any], origin: type, inside: tuple[Any, ...], at: str,
              strict: bool) -> Any:
    if origin is tuple and not (len(inside) == 2 and inside[1] is Ellipsis):
        if len(value) != len(inside):
            raise ConvertError(f"Expected `array` of length {len(inside)}{_at(at)}")
        kinds: Sequence[Any] = inside
    else:
        kinds = [inside[0]] * len(value)
    return origin(_convert(item, kind, f"{at}[{index}]", strict)
                  for index, (item, kind) in enumerate(zip(value, kinds, strict=True)))


def _one_of(value: Any, kinds: tuple[Any, ...], at: str, strict: bool) -> Any:
    tagged = {kind.TAG: kind for kind in kinds if hasattr(kind, "TAG")}
    if tagged and isinstance(value, dict):
        if not isinstance(value.get("type"), str) or value["type"] not in tagged:
            raise ConvertError(f"Invalid value {value.get('type')!r}{_at(at + '.type')}")
        return _convert(value, tagged[value["type"]], at, strict)
    if type(value) in kinds:
        return value
    errors = [ConvertError(_expected(kinds, value, at))]
    for kind in kinds:
        if kind in NAMES and not (kind is float and type(value) is int):
            continue
        try:
            return _convert(value, kind, at, strict)
        except ConvertError as error:
            if _kind(value) == _word(kind):  # the right JSON type, but a wrong part
                errors.append(error)
    raise errors[-1]


@cache
def _hints(type_: type) -> dict[str, Any]:
    return typing.get_type_hints(type_)


def _build(value: dict[str, Any], type_: Any, at: str, strict: bool) -> Any:
    hints = _hints(type_)
    fields = {field.name: field for field in dataclasses.fields(type_)}
    tag = getattr(type_, "TAG", None)
    if tag is not None and value.get("type", tag) != tag:
        raise ConvertError(f"Invalid value {value['type']!r}{_at(at + '.type')}")
    arguments = {}
    for key, inner in value.items():
        if key in fields:
            arguments[key] = _convert(inner, hints[key], f"{at}.{key}", strict)
        elif strict and not (tag is not None and key == "type"):
            raise ConvertError(f"Object contains unknown field `{key}`{_at(at)}")
    for name, field in fields.items():
        if name not in arguments and field.default is dataclasses.MISSING \
                and field.default_factory is dataclasses.MISSING:
            raise ConvertError(f"Object missing required field `{name}`{_at(at)}")
    try:
        return type_(**arguments)
    except ValueError as error:
        raise ConvertError(f"{error}{_at(at)}") from error


def _expected(type_: Any, value: object, at: str) -> str:
    kinds = type_ if isinstance(type_, tuple) else (type_,)
    words = " | ".join(dict.fromkeys(_word(kind) for kind in kinds))
    return f"Expected `{words}`, got `{_kind(value)}`{_at(at)}"


def _word(type_: Any) -> str:
    if type_ in NAMES:
        return NAMES[type_]
    origin = get_origin(type_)
    if origin is Literal:
        return NAMES[type(get_args(type_)[0])]
    return "array" if origin in (tuple, list) else "object"


def _kind(value: object) -> str:
    return NAMES.get(type(value)) or ("array" if isinstance(value, list | tuple) else "object")


def _at(path: str) -> str:
    return "" if path == "$" else f" - at `{path}`"
