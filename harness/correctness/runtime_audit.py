"""Findings from the runner's own observations of what a candidate changed in its process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.audit.transfer import TRACE_STEPS
from harness.case import Case
from harness.correctness.statefulness import MOST_MOVES, draw_moves
from harness.formats.text import one_line
from harness.isolation.rpc import INVALID_ANSWER, Peer, PeerError, decode_answer
from harness.runners.slots.case_memory import CaseMemory
from harness.tasks.target import Target
from harness.verdict import Finding, TraceStep

MOST_SEEN = 20
MOST_LETTERS = 200
Rule = Literal["patched", "global-flags", "threads", "hidden-code", "delegation"]


@dataclass(frozen=True, kw_only=True)
class RuntimeObservation:
    """One observation of the runner; the candidate may have forged the detail."""

    rule: Rule
    detail: str

    @property
    def finding(self) -> Finding:
        return Finding(rule=self.rule, severity="reject" if self.rule == "patched" else "flag",
                       detail=one_line(self.detail, MOST_LETTERS))


def watch(runner: Peer) -> list[Finding]:
    """Return what changed since before the kernel was loaded. Raises PeerError."""
    return _findings(runner.ask("watch"))


def trial(memory: CaseMemory, case: Case, target: Target) -> list[Finding]:
    """Return findings on delegated work, from calls on the first slot of a memory.

    The slot has other contents afterwards. Compiled kernels are not tried.
    """
    if target.is_compiled:
        return []
    moves = {name: [list(sources), list(sources.values())]
             for name, sources in draw_moves(case, MOST_MOVES).items()}
    in_source = target.reference_file == target.source
    memory.place(case)
    return _findings(memory.peer.ask(
        "trial", case=memory.id, slot=0, moves=moves, triton=target.language == "triton",
        reference="" if in_source else target.reference_file))


def trace(memory: CaseMemory, weights: Collection[str]) -> tuple[TraceStep, ...]:
    """Return what the kernel recognises over training steps, on the first slot of a memory.

    Raises PeerError.
    """
    answer = memory.peer.ask("trace", case=memory.id, slot=0, weights=sorted(weights),
                             steps=TRACE_STEPS)
    steps = decode_answer(answer.get("steps"), tuple[TraceStep, ...])
    if len(steps) != TRACE_STEPS:
        raise PeerError("did not trace every step")
    return steps


def new_findings(findings: Iterable[Finding], known: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are not known yet, without duplicates."""
    seen = {(finding.rule, finding.detail) for finding in known}
    return [finding for finding in dict.fromkeys(findings)
            if (finding.rule, finding.detail) not in seen]


def reject_reason(findings: Iterable[Finding]) -> str:
    """Return why these findings reject a candidate; empty if they do not."""
    return next((f"tampered: {finding.detail}" for finding in findings
                 if finding.severity == "reject"), "")


def _findings(answer: dict[str, Any]) -> list[Finding]:
    """Return the findings in an answer to `watch` or `trial`. Raises PeerError."""
    seen = decode_answer(answer.get("seen"), tuple[RuntimeObservation, ...])
    if len(seen) > MOST_SEEN:
        raise PeerError(f"{INVALID_ANSWER}: more than {MOST_SEEN} observations")
    return [observation.finding for observation in seen]
