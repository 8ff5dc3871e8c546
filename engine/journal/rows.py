"""How a record becomes a row of its table, and a row the record again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from engine.journal.records import (
    Bottleneck,
    Campaign,
    Candidate,
    Control,
    DecisionRow,
    Event,
    Lease,
    Round,
    Slot,
    VerdictRow,
)

Record = TypeVar("Record", bound=msgspec.Struct)

TABLE: dict[type[msgspec.Struct], str] = {
    Campaign: "campaigns",
    Lease: "leases",
    Round: "rounds",
    Slot: "slots",
    Candidate: "candidates",
    VerdictRow: "verdicts",
    DecisionRow: "decisions",
    Bottleneck: "bottlenecks",
    Event: "events",
    Control: "controls",
}

Value = str | int | float | bytes | None

PAYLOAD_TEXT = 600
"""Longest text in an event's payload, characters; the whole text is in the row it tells of."""


def columns(record: type[msgspec.Struct]) -> str:
    """Return the record's columns, quoted (`commit` is a word of SQL)."""
    return ", ".join(f'"{name}"' for name in record.__struct_fields__)


def select(record: type[msgspec.Struct], rest: str = "") -> str:
    """Return the query for records of a kind; `rest` starts at WHERE or ORDER BY."""
    return f"SELECT {columns(record)} FROM {TABLE[record]} {rest}"


def fetch(
    connection: sqlite3.Connection, record: type[Record], rest: str = "",
    values: Iterable[Value] = (),
) -> list[Record]:
    """Run the query of `select` and return its records."""
    rows = connection.execute(select(record, rest), tuple(values))
    return [msgspec.convert(dict(row), record, strict=False) for row in rows]


def insert(record: msgspec.Struct, *, verb: str = "INSERT", without: str = "") -> str:
    """Return the statement that stores a record; `without` names a column SQLite numbers."""
    names = [name for name in record.__struct_fields__ if name != without]
    listed = ", ".join(f'"{name}"' for name in names)
    marks = ", ".join("?" * len(names))
    return f"{verb} INTO {TABLE[type(record)]} ({listed}) VALUES ({marks})"


def upsert(record: msgspec.Struct, *key: str) -> str:
    """Return the statement that stores a record, or overwrites the one of that `key` in its place.

    A row that is replaced would be the newest, and what was listed first would be listed last.
    """
    kept = ", ".join(f'"{name}" = excluded."{name}"' for name in record.__struct_fields__
                     if name not in key)
    return f"{insert(record)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {kept}"


def values(record: msgspec.Struct, *, without: str = "") -> tuple[Value, ...]:
    """Return what `insert` binds."""
    names = (name for name in record.__struct_fields__ if name != without)
    return tuple(storable(getattr(record, name)) for name in names)


def storable(value: Value) -> Value:
    """Return the value as SQLite takes it: texts of workers may not even be valid Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


def payload(fields: Mapping[str, object]) -> bytes:
    """Return an event's payload: JSON, every text valid Unicode and clipped to PAYLOAD_TEXT."""
    return msgspec.json.encode({name: _small(value) for name, value in fields.items()})


def _small(value: object) -> object:
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode()
        return text if len(text) <= PAYLOAD_TEXT else text[: PAYLOAD_TEXT - 1] + "…"
    if isinstance(value, Mapping):
        return {str(name): _small(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_small(item) for item in value]
    return value
