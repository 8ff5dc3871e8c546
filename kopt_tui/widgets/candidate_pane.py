"""What is known about a candidate: claim, verdicts, audit, decisions, requests."""

from __future__ import annotations

import textwrap

from engine.journal.records import Candidate
from harness.verdict import Verdict
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CandidateView, JudgedVerdict, Speedup
from kopt_tui.widgets.classes_pane import class_lines
from kopt_tui.widgets.pane import Pane
from kopt_tui.widgets.tones import Line

INDENT = 12


class CandidatePane(Pane):
    """Everything but the patch."""

    TITLE = "candidate"
    view: CandidateView | None = None

    def set_view(self, view: CandidateView) -> None:
        """Show this candidate."""
        if view != self.view or not self._drawn:
            self.view = view
            self.note = phrases.short(view.candidate.id, 12) if view.candidate else ""
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        view = self.view
        if view is None:
            return [((" reading the journal", "dim"),)]
        if view.candidate is None:
            return [((f" ! {view.missing}", "warn"),)]
        lines = _about(view.candidate, width)
        if view.waiting is not None:
            why = view.waiting.why or "approval is asked for"
            lines += _field("? waits", f"for approval: {why}", width, "accent bold")
        for one in view.controls:
            if one.applied_at is None:
                lines += _field("» asked", f"{one.verb} by {one.by}: not answered yet", width,
                                "info bold")
        for judged in view.verdicts:
            lines += [(), *_verdict(judged, width)]
        if not view.verdicts:
            lines += [(), ((" no verdict yet", "dim"),)]
        return lines + _history(view, width)


def _about(one: Candidate, width: int) -> list[Line]:
    said = f"{one.state}, {one.reason}" if one.reason and one.state != "waiting" else one.state
    commit = f", commit {phrases.short(one.commit, 12)}" if one.commit else ""
    origin = f"slot {one.slot}, round {one.round}, on base {phrases.short(one.base_commit, 12)}"
    return [*_field("claim", one.hypothesis or "none given", width, "bold"),
            *_field("bottleneck", one.bottleneck, width),
            *_field("state", f"{phrases.sign(one.state)} {said}{commit}", width),
            *_field("from", origin, width)]


def _verdict(judged: JudgedVerdict, width: int) -> list[Line]:
    heading = f" verdict {judged.id}"
    at = f"  {phrases.stamp(judged.at)}  {judged.purpose}"
    if judged.verdict is None:
        return [((heading, "bold"), (at, "dim")), ((" its record cannot be read", "warn"),)]
    found = judged.verdict
    lines: list[Line] = [((heading, "bold"), (f"  {found.device}{at}", "dim"))]
    if not found.valid:
        lines += _field("✗ invalid", found.rejected_reason or "", width, "bad bold")
    elif not found.correct:
        lines += _field("✗ incorrect", found.rejected_reason or _errors(found), width, "bad bold")
    else:
        lines += _field("✓ correct", _errors(found), width, "good bold")
    if found.latency_us is not None:
        said = f"{phrases.micros(found.latency_us)} {found.latency_kind}"
        if found.speedup is not None:
            ratio = Speedup(found.speedup, found.speedup_low, found.speedup_high)
            said = f"{phrases.speedup(ratio)}, {said}"
        if found.pct_of_roofline is not None:
            said += f", {found.pct_of_roofline:.0f}% of the roofline"
        lines += _field("speedup", said, width)
    if found.rows:
        lines += class_lines(found.rows, width)
    lines += [line for one in found.audit for line in
              _field(phrases.signed(one.severity), f"{one.rule}: {one.detail}", width,
                     phrases.tone(one.severity))]
    if found.valid and not found.audit:
        lines += _field("audit", "nothing found", width)
    lines += [line for one in found.evidence for line in
              _field("evidence", f"{one.kind}: {one.detail}", width)]
    return lines + [line for one in found.notes for line in _field("note", one, width)]


def _errors(found: Verdict) -> str:
    parts = [f"relative error {found.max_rel_err:.2g}" if found.max_rel_err is not None else "",
             f"{found.error_budget_used * 100:.0f}% of the error budget"
             if found.error_budget_used is not None else ""]
    return ", ".join(part for part in parts if part) or "against the float64 reference"


def _history(view: CandidateView, width: int) -> list[Line]:
    said = [(one.at, f"{phrases.signed(one.kind)}", f"by {one.actor}: {one.reason}"
             + (f" (commit {phrases.short(one.commit, 12)})" if one.commit else ""),
             phrases.tone(one.kind)) for one in view.decisions]
    said += [(one.at, f"» {one.verb}", f"by {one.by}: {one.outcome or 'done'}"
              if one.applied_at else f"by {one.by}: the engine has not answered yet", "info")
             for one in view.controls]
    lines: list[Line] = [(), ((" history", "bold"),)] if said else []
    for at, word, text, tone in sorted(said):
        first, *rest = textwrap.wrap(text, max(20, width - 27)) or [""]
        lines.append(((f" {phrases.clock(at)} ", "dim"), (f"{word:<13} ", tone), (first, "plain")))
        lines += [((" " * 24 + more, "plain"),) for more in rest]
    return lines


def _field(name: str, text: str, width: int, tone: str = "dim") -> list[Line]:
    """Return a named text, wrapped under itself; nothing for an empty one."""
    if not text:
        return []
    first, *rest = textwrap.wrap(text, max(20, width - INDENT - 2)) or [""]
    return [((f" {name:<{INDENT}}", tone), (first, "plain")),
            *(((" " * (INDENT + 1) + more, "plain"),) for more in rest)]
