"""Removes control characters from every text of a record or a file, once for all snapshots."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TypeVar

import msgspec

from engine.journal.decoded.recorded import verdict_or_none
from engine.journal.judged_rows import VerdictRow
from harness.formats.text import plain
from harness.verdict import Verdict
from kopt_tui.snapshot import phrases

Value = TypeVar("Value")


@lru_cache(maxsize=600)
def harmless_verdict(row: VerdictRow) -> Verdict | None:
    """Return a recorded verdict with harmless texts, None if it cannot be read."""
    verdict = verdict_or_none(row)
    return None if verdict is None else harmless(verdict)


def harmless(value: Value) -> Value:
    """Return a record with every text in it as one plain line; lists and mappings stay as is."""
    if isinstance(value, str):
        return phrases.clean(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(harmless(item) for item in value)  # type: ignore[return-value]
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{
            name: harmless(getattr(value, name)) for name in value.__struct_fields__})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{
            field.name: harmless(getattr(value, field.name))
            for field in dataclasses.fields(value)})
    return value


def harmless_lines(data: bytes) -> str:
    """Return a file's bytes as text: lines are kept and clipped, control characters removed."""
    text = data.decode("utf-8", "replace").replace("\r", "")  # `plain` makes it a line break
    return "\n".join(plain(line.expandtabs(4), 1000) for line in text.split("\n"))
