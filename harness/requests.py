"""What `python -m harness` is asked and what it answers: one file in, JSON lines out."""

from __future__ import annotations

import msgspec

from harness.evaluate import Settings, Trees
from harness.loop import Job, LoopResult, Trial
from harness.target import Target
from harness.verdict import Verdict


class EvaluateRequest(msgspec.Struct, frozen=True, kw_only=True, tag="evaluate"):
    target: Target
    trees: Trees
    device: str
    settings: Settings


class LoopRequest(msgspec.Struct, frozen=True, kw_only=True, tag="loop"):
    target: Target
    job: Job
    device: str
    settings: Settings


Request = EvaluateRequest | LoopRequest


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    stage: str
    detail: str = ""
    done: float | None = None


class TrialLine(msgspec.Struct, frozen=True, kw_only=True, tag="trial"):
    trial: Trial


class VerdictLine(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    verdict: Verdict


class LoopLine(msgspec.Struct, frozen=True, kw_only=True, tag="loop-result"):
    result: LoopResult


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """The request could not be answered: a bad task or a fault of the machine."""

    what: str
    where: str = ""
    fix: str = ""
    exit_code: int = 3


Line = Progress | TrialLine | VerdictLine | LoopLine | ErrorLine
"""One line of the answer; the last one is a verdict, a loop's result or an error."""
