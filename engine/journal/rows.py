"""Converts records to rows and back; tuples, dictionaries and structs are JSON columns."""

from __future__ import annotations

import functools
import json
import sqlite3
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from engine.journal.records import JournalRow

Record = TypeVar("Record", bound=JournalRow)
Value = str | int | float | bytes | None

PAYLOAD_TEXT = 600
"""Longest text in an event's payload, characters; the row that it is about has the whole text."""


def fetch(connection: sqlite3.Connection, record: type[Record], rest: str,
          values: Iterable[Value] = ()) -> list[Record]:
    """Return the records that `rest` selects: the part of a query from WHERE or ORDER BY on."""
    columns = ", ".join(f'"{name}"' for name in record.__struct_fields__)  # `commit` is a keyword
    decoders = _decoders(record)
    records = []
    for row in connection.execute(f"SELECT {columns} FROM {record.TABLE} {rest}", tuple(values)):
        fields = dict(row)
        for name, decode in decoders.items():
            fields[name] = decode(fields[name])
        records.append(msgspec.convert(fields, record))
    return records


def store(connection: sqlite3.Connection, record: JournalRow, *, verb: str = "INSERT",
          without: str = "", conflict: str = "") -> sqlite3.Cursor:
    """Insert a record. SQLite numbers the column `without`; `conflict` ends the statement."""
    names = [name for name in record.__struct_fields__ if name != without]
    columns = ", ".join(f'"{name}"' for name in names)
    marks = ", ".join("?" * len(names))
    return connection.execute(
        f"{verb} INTO {record.TABLE} ({columns}) VALUES ({marks}) {conflict}",
        [storable(getattr(record, name)) for name in names])


def on_conflict_update(record: type[JournalRow], *key: str) -> str:
    """Return the clause that updates the row with the same `key` in place.

    REPLACE would give the row a new rowid, and rows are listed in the order of their rowids.
    """
    changed = ", ".join(f'"{name}" = excluded."{name}"' for name in record.__struct_fields__
                        if name not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"


def storable(value: object) -> Value:
    """Return a value as SQLite stores it: text as valid Unicode, nested values as JSON."""
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, int | float | bytes):
        return value
    return json.dumps(msgspec.to_builtins(value))  # escapes the lone surrogates of odd file names


def text(value: str) -> str:
    """Return a text as the journal stores it; texts from workers may hold lone surrogates."""
    return value.encode("utf-8", "replace").decode()


def payload(fields: Mapping[str, object]) -> bytes:
    """Return an event's payload: JSON, every text valid Unicode and clipped to PAYLOAD_TEXT."""
    return msgspec.json.encode({name: _clipped(value) for name, value in fields.items()})


def _clipped(value: object) -> object:
    if isinstance(value, str):
        whole = text(value)
        return whole if len(whole) <= PAYLOAD_TEXT else whole[: PAYLOAD_TEXT - 1] + "…"
    if isinstance(value, Mapping):
        return {str(name): _clipped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clipped(item) for item in value]
    return value


@functools.cache
def _decoders(record: type[JournalRow]) -> Mapping[str, Callable[[typing.Any], object]]:
    """Return decoders for the columns that SQLite does not return as their field's type."""
    decoders: dict[str, Callable[[typing.Any], object]] = {}
    for field in msgspec.structs.fields(record):
        if field.type is bool:
            decoders[field.name] = bool
        elif typing.get_origin(field.type) in (tuple, dict) or any(
                isinstance(part, type) and issubclass(part, msgspec.Struct)
                for part in typing.get_args(field.type) or (field.type,)):
            decoders[field.name] = _from_json
    return decoders


def _from_json(text: str | None) -> object:
    return None if text is None else json.loads(text)
