"""The rows of verdicts and of the decisions that followed from them."""

from __future__ import annotations

from typing import Literal

from engine.journal.records import JournalRow

DecisionKind = Literal["keep", "tie", "regression", "reject", "repair", "split", "ask",
                       "provisional", "runner-up"]

_ASKS = " — asks because "


def asking(measured: str, doubts: str) -> str:
    """Return the reason to ask a person, for people: what was measured, and the doubts."""
    return f"{measured}{_ASKS}{doubts}" if doubts else measured


class VerdictRow(JournalRow, frozen=True, kw_only=True):
    """A recorded verdict; `body` holds the whole verdict as JSON."""

    TABLE = "verdicts"
    id: int
    campaign: str
    candidate: str
    purpose: str
    incumbent_tree: str
    harness_version: str
    valid: bool
    correct: bool
    latency_us: float | None
    speedup: float | None
    low: float | None
    high: float | None
    body: bytes
    at: float


class DecisionRow(JournalRow, frozen=True, kw_only=True):
    TABLE = "decisions"
    id: int
    campaign: str
    candidate: str
    verdict: int | None
    round: int
    kind: DecisionKind
    reason: str
    actor: str
    commit: str
    at: float
    is_fault: bool = False
    """Whether the candidate was rejected because of the machine, not because of its kernel."""
    near_gain: float | None = None
    """By which share it was faster, if only the noise kept it from being kept; else None."""
    is_rejection: bool = False
    """Whether a person has rejected a verified gain."""
    doubts: str = ""
    """Why a person is asked; `reason` ends with it."""

    @property
    def measured(self) -> str:
        """The reason without the doubts."""
        return self.reason.removesuffix(f"{_ASKS}{self.doubts}")

    @property
    def allows_repeat(self) -> bool:
        """Whether a person may have the candidate measured again: that may change the decision."""
        return self.kind in ("tie", "regression") or self.is_fault or self.is_rejection
