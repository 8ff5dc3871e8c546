"""What a candidate left behind in its runner, asked of the runner itself and made findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.audit.transfer import TRACE_STEPS
from harness.case import Case
from harness.correctness.statefulness import MOST_MOVES, draw_moves
from harness.formats.text import plain
from harness.isolation.rpc import Peer, PeerError, decode_answer
from harness.target import Target
from harness.verdict import Finding, TraceStep

MOST_SEEN = 20
MOST_LETTERS = 200
Rule = Literal["patched", "global-flags", "threads", "hidden-code", "delegation"]


@dataclass(frozen=True, kw_only=True)
class RuntimeObservation:
    """One thing that the runner saw; the detail may be the candidate's own words."""

    rule: Rule
    detail: str

    @property
    def finding(self) -> Finding:
        return Finding(rule=self.rule, severity="reject" if self.rule == "patched" else "flag",
                       detail=" ".join(plain(self.detail, MOST_LETTERS).split()))


@dataclass(frozen=True, kw_only=True)
class WatchAnswer:
    """A runner's answer to `watch` and `trial`."""

    seen: tuple[RuntimeObservation, ...]

    def __post_init__(self) -> None:
        if len(self.seen) > MOST_SEEN:
            raise ValueError(f"more than {MOST_SEEN} things were seen")


def watch(runner: Peer) -> list[Finding]:
    """Return what differs from before the kernel was opened. Raises PeerError for nonsense."""
    return _findings(runner.ask("watch"))


def trial(runner: Peer, case: Case, target: Target) -> list[Finding]:
    """Return whether the kernel leaves the work to others, by calls on the case that is kept.

    The kept buffers hold other contents afterwards. A C kernel is asked nothing.
    """
    if target.language == "c":
        return []
    moves = {name: [list(sources), list(sources.values())]
             for name, sources in draw_moves(case, MOST_MOVES).items()}
    own = target.reference_file == target.source
    return _findings(runner.ask("trial", moves=moves, triton=target.language == "triton",
                                reference="" if own else target.reference_file))


@dataclass(frozen=True, kw_only=True)
class TraceAnswer:
    """A runner's answer to `trace`."""

    steps: tuple[TraceStep, ...]


def trace(runner: Peer, weights: Collection[str]) -> tuple[TraceStep, ...]:
    """Return what the kernel recognises over steps as training takes them, on the kept case.

    Raises PeerError when it fails there, or answers nonsense.
    """
    answer = runner.ask("trace", weights=sorted(weights), steps=TRACE_STEPS)
    steps = decode_answer(answer, TraceAnswer).steps
    if len(steps) != TRACE_STEPS:
        raise PeerError("did not trace every step")
    return steps


def new_findings(found: Iterable[Finding], known: Sequence[Finding]) -> list[Finding]:
    """Return what is not known yet, each only once."""
    return [one for one in dict.fromkeys(found)
            if (one.rule, one.detail) not in {(old.rule, old.detail) for old in known}]


def reject_reason(found: Iterable[Finding]) -> str:
    """Return the reason for which a candidate is rejected, empty where it is not."""
    return next((f"tampered: {one.detail}" for one in found if one.severity == "reject"), "")


def _findings(answer: dict[str, Any]) -> list[Finding]:
    return [observation.finding for observation in decode_answer(answer, WatchAnswer).seen]
