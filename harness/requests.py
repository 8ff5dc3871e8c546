"""The requests and answers of `python -m harness`: one file in, JSON lines out."""

from __future__ import annotations

from dataclasses import dataclass

from harness.benchmark.spec.command_target import CommandTarget, EndToEndTarget
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.settings import Settings, Trees
from harness.tasks.target import Target
from harness.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class _Request:
    device: str
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(_Request):
    TAG = "evaluate"
    target: Target
    trees: Trees


@dataclass(frozen=True, kw_only=True)
class LoopRequest(_Request):
    TAG = "loop"
    target: Target
    job: SearchJob


@dataclass(frozen=True, kw_only=True)
class ReportedRequest(_Request):
    """A verdict by the project's own benchmark; on a GPU `trees.reference` runs first, confined."""

    TAG = "reported"
    target: CommandTarget
    trees: Trees


@dataclass(frozen=True, kw_only=True)
class ReportedLoopRequest(_Request):
    """A search of a command target's knobs; possible winners get `repeats` more runs, in pairs."""

    TAG = "reported-loop"
    target: CommandTarget
    job: SearchJob
    repeats: int = 0


@dataclass(frozen=True, kw_only=True)
class EndToEndRequest(_Request):
    """Whole runs of the program with `trees.candidate` and with `trees.incumbent`."""

    TAG = "end-to-end"
    target: EndToEndTarget
    trees: Trees


Request = EvaluateRequest | LoopRequest | ReportedRequest | ReportedLoopRequest | EndToEndRequest


@dataclass(frozen=True, kw_only=True)
class Progress:
    TAG = "progress"
    stage: str
    detail: str = ""
    done: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrialLine:
    TAG = "trial"
    trial: Trial


@dataclass(frozen=True, kw_only=True)
class VerdictLine:
    TAG = "verdict"
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class LoopLine:
    TAG = "loop-result"
    result: LoopResult


@dataclass(frozen=True, kw_only=True)
class ErrorLine:
    """The request could not be answered: its input is bad or the machine failed."""

    TAG = "error"
    what: str
    where: str = ""
    fix: str = ""
    exit_code: int = 3
    of_device: bool = False
    """Whether the device failed, so that the same request may succeed on another."""
    may_pass: bool = False
    """Whether the same request may succeed later: the incumbent worked before and failed now."""


Line = Progress | TrialLine | VerdictLine | LoopLine | ErrorLine
"""One line of the answer; the last is a verdict, a loop's result or an error."""
