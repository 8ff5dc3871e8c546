"""Messages that slot threads put on the engine's queue."""

from __future__ import annotations

import msgspec


class SlotProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's live stage."""

    slot: str
    stage: str
    detail: str = ""
    done: float | None = None
