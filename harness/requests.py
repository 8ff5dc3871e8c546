"""What `python -m harness` is asked and what it answers: one file in, JSON lines out."""

from __future__ import annotations

from dataclasses import dataclass

from harness.benchmark.spec.command_target import CommandTarget, EndToEndTarget
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.settings import Settings, Trees
from harness.target import Target
from harness.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    TAG = "evaluate"
    target: Target
    trees: Trees
    device: str
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class LoopRequest:
    TAG = "loop"
    target: Target
    job: SearchJob
    device: str
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class ReportedRequest:
    TAG = "reported"
    """A verdict by the project's own benchmark; `trees.reference` shows whether a GPU works in
    namespaces."""

    target: CommandTarget
    trees: Trees
    device: str
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class ReportedLoopRequest:
    TAG = "reported-loop"
    """A search over the knobs of a command target's source; `job.reference` is the baseline's.

    With `repeats` those that may be best in some class are run so often again, beside the best.
    """

    target: CommandTarget
    job: SearchJob
    device: str
    settings: Settings
    repeats: int = 0


@dataclass(frozen=True, kw_only=True)
class EndToEndRequest:
    TAG = "end-to-end"
    """Whole runs of the program with `trees.candidate` and with `trees.incumbent`."""

    target: EndToEndTarget
    trees: Trees
    device: str
    settings: Settings


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
    TAG = "error"
    """The request could not be answered: a bad task or a fault of the machine."""

    what: str
    where: str = ""
    fix: str = ""
    exit_code: int = 3
    of_device: bool = False
    """Whether it is the device's fault, so that the same request may be answered on another."""
    may_pass: bool = False
    """Whether the same request may be answered another time: what worked before did not now."""


Line = Progress | TrialLine | VerdictLine | LoopLine | ErrorLine
"""One line of the answer; the last one is a verdict, a loop's result or an error."""
