"""A candidate without its patch: claim, verdicts, audit, decisions, requests."""

from __future__ import annotations

from engine.journal.decoded.patch_review import PatchReview
from engine.journal.records import Candidate
from harness.verdict import Verdict
from kopt_tui.snapshot import phrases, verdict_words
from kopt_tui.snapshot.snapshot import CandidateView
from kopt_tui.snapshot.verdict_words import JudgedVerdict
from kopt_tui.widgets.classes_pane import class_lines
from kopt_tui.widgets.pane import ContentPane, wrapped_under
from kopt_tui.widgets.tones import Line


class CandidatePane(ContentPane[CandidateView | None]):
    """The facts of one candidate, as named lines."""

    TITLE = "candidate"
    EMPTY = "reading the journal"
    content: CandidateView | None = None

    def title_note(self) -> str:
        candidate = self.content.candidate if self.content else None
        return phrases.short(candidate.id, 12) if candidate else ""

    def compose_lines(self, width: int) -> list[Line]:
        view = self.content
        if view is None:
            return [((f" {self.EMPTY}", "dim"),)]
        if view.candidate is None:
            return [((f" ! {view.missing}", "warn"),)]
        lines = _about(view.candidate, width)
        lines += _field("~ again", view.again and f"m or {view.again}", width, "accent")
        if view.waiting is not None:
            why = view.waiting.why or "approval is needed"
            lines += _field("? waits", f"for approval: {why}", width, "accent bold")
            lines += _field("! not yet", view.waiting.obstacle, width, "warn")
            lines += _field("built on it", view.waiting.resting, width)
            lines += _field("a model", view.waiting.review, width)
        for control in view.controls:
            if control.applied_at is None:
                lines += _field("» requested", f"{control.verb} by {control.by}: not answered yet",
                                width, "info bold")
        for judged in view.verdicts:
            lines += [(), *_verdict(judged, width)]
        if not view.verdicts:
            lines += [(), ((" no verdict yet", "dim"),)]
        return lines + _review(view.review, width) + _history(view, width)


def _review(review: PatchReview | None, width: int) -> list[Line]:
    """Return what a model says of the candidate, below what was measured."""
    if review is None or not review.lines:
        return []
    return [(), ((f" review by {review.model} (advisory)", "bold"),),
            *(line for text in review.lines
              for line in wrapped_under(((" ", "dim"),), text, width))]


def _about(candidate: Candidate, width: int) -> list[Line]:
    state = candidate.state
    reason = f", {candidate.reason}" if candidate.reason and state != "waiting" else ""
    commit = f", commit {phrases.short(candidate.commit, 12)}" if candidate.commit else ""
    origin = (f"slot {candidate.slot}, round {candidate.round}, "
              f"on base {phrases.short(candidate.base_commit, 12)}")
    return [*_field("claim", candidate.hypothesis or "none given", width, "bold"),
            *_field("bottleneck", candidate.bottleneck, width),
            *_field("state", f"{phrases.signed(state)}{reason}{commit}", width),
            *_field("from", origin, width)]


def _verdict(judged: JudgedVerdict, width: int) -> list[Line]:
    heading = f" verdict {judged.id}"
    at = f"  {phrases.stamp(judged.at)}  {judged.purpose}"
    verdict = judged.verdict
    if verdict is None:
        return [((heading, "bold"), (at, "dim")),
                ((" this version of kopt cannot read it", "warn"),)]
    lines: list[Line] = [((heading, "bold"), (f"  {verdict.device}{at}", "dim")),
                         *_outcome(verdict, width)]
    if verdict.latency_us is not None:
        text = ", ".join(filter(None, (verdict_words.speedup(verdict),
                                       verdict_words.latency(verdict))))
        if verdict.pct_of_roofline is not None:
            text += f", {verdict.pct_of_roofline:.0f}% of the roofline"
        lines += _field("speedup", text, width)
    if verdict.rows:
        lines += class_lines(verdict.rows, width)
    lines += [line for finding in verdict.audit for line in
              _field(phrases.signed(finding.severity), f"{finding.rule}: {finding.detail}", width,
                     phrases.tone(finding.severity))]
    if verdict.valid and not verdict.audit:
        lines += _field("audit", "nothing found", width)
    lines += [line for evidence in verdict.evidence for line in
              _field("evidence", f"{evidence.kind}: {evidence.detail}", width)]
    return lines + [line for note in verdict.notes for line in _field("note", note, width)]


def _outcome(verdict: Verdict, width: int) -> list[Line]:
    described = verdict_words.describe(verdict)
    errors = verdict_words.errors(verdict)
    if described.outcome == "invalid":
        return _field("✗ invalid", described.reason, width, "bad bold")
    if described.outcome == "not judged here":
        return _field("· not judged", described.reason, width, "warn")
    if described.outcome == "incorrect":
        return _field("✗ incorrect", described.reason or errors, width, "bad bold")
    correct = _field("✓ correct", errors, width, "good bold")
    return [*correct, *_field("✗ rejected", described.reason, width, "bad bold")] \
        if described.outcome == "rejected" else correct


def _history(view: CandidateView, width: int) -> list[Line]:
    entries = [(decision.at, word, f"by {decision.actor}: {decision.reason}"
                + (f" (commit {phrases.short(decision.commit, 12)})" if decision.commit else ""),
                tone) for decision in view.decisions
               for word, tone in [phrases.ruled(decision.kind, decision.reason)]]
    entries += [(control.at, f"» {control.verb}", f"by {control.by}: {control.outcome or 'done'}"
                 if control.applied_at else f"by {control.by}: the engine has not answered yet",
                 "info") for control in view.controls]
    lines: list[Line] = [(), ((" history", "bold"),)] if entries else []
    for at, word, text, tone in sorted(entries):
        head = (f" {phrases.clock(at)} ", "dim"), (f"{word:<13} ", tone)
        lines += wrapped_under(head, text, width - 2)
    return lines


def _field(name: str, text: str, width: int, tone: str = "dim") -> list[Line]:
    """Return a named text, wrapped under itself, no line for an empty text."""
    return wrapped_under(((f" {name:<12}", tone),), text, width)
