"""What the builder of snapshots remembers, and what it does to every text before it is shown."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import msgspec

from engine.journal.records import VerdictRow
from harness.formats.text import plain
from harness.verdict import Verdict
from kopt_tui.snapshot import phrases

Value = TypeVar("Value")


class SnapshotCache:
    """Values made once by key, the oldest forgotten first."""

    def __init__(self, size: int = 600) -> None:
        self._size = size
        self._kept: OrderedDict[tuple[str, ...], object] = OrderedDict()

    def once(self, key: tuple[str, ...], make: Callable[[], Value]) -> Value:
        """Return what was made for a key before, or make it."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]  # type: ignore[return-value]
        made = make()
        self._kept[key] = made
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return made

    def body(self, row: VerdictRow) -> Verdict | None:
        """Return the harness's answer in a recorded verdict, None if it cannot be read."""
        return self.once(("body", row.campaign, str(row.id)),
                         lambda: harmless(row.decode_or_none()))


def harmless(value: Value) -> Value:
    """Return a record with every text in it stripped of control characters, on one line."""
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
    """Return a file's bytes as text whose lines are clipped and stripped of control characters."""
    return "\n".join(plain(line.expandtabs(4), 1000)
                     for line in data.decode("utf-8", "replace").split("\n"))
