"""The message by which slots and verdicts report progress on the engine's queue."""

from __future__ import annotations

import msgspec


class SlotProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's live stage; `done` is a share of 1."""

    slot: str
    stage: str
    detail: str = ""
    done: float | None = None
