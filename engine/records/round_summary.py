"""rounds/round-N/summary.md: what a round tried, what was measured, and what was decided."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history import change_summary
from engine.history.campaign_view import JournalView, StagnationRecord
from engine.journal.records import DecisionRow, Round
from engine.markdown import cost, line, table
from engine.records import measured, performance, stop_summary, transfer_check
from harness.formats import quantities
from harness.formats.quantities import counted
from harness.verdict import Verdict

SLOTS = ("slot", "kind", "worker", "hypothesis", "bottleneck", "came to", "detail")
CHANGES = ("candidate", "slot", "change", "decision", "reason", "by")
LIMITS = ("id", "kernel", "class", "limiter", "value", "detail", "advice")
OUTCOMES = {"baseline": "BASELINE", "keep": "ACCEPTED", "tie": "ROLLED BACK",
            "regression": "ROLLED BACK", "failed": "ROLLED BACK"}
"""What a round's outcome means for the line of kept commits."""


def page(view: JournalView, round: Round) -> str:
    """Return a round's summary.md."""
    lines = [*_head(view, round), *review(view.reviews.get(round.n)), *_hypotheses(view, round),
             *_changes(view, round), *_results(view, round), *_decision(view, round),
             *_limits(view, round), *_transfer(view, round), *_rollback(view, round),
             *_lessons(view, round), *_next(view, round)]
    return "\n".join(lines).rstrip() + "\n"


def best(round: Round) -> str:
    return quantities.speedup(round.best_speedup) or "not measured"


def decision(view: JournalView, round: Round) -> str:
    """Return ACCEPTED, ROLLED BACK or BASELINE; an approval after the round counts."""
    kept = any(keep.round == round.n for keep in view.history.keeps)
    return "ACCEPTED" if kept else OUTCOMES.get(round.outcome or "", "not ended")


def value(metric: str, number: float | None) -> str:
    return "" if number is None else f"{number:.4g} {metric}"


def scope(view: JournalView, round: Round, *, later: bool = False) -> Iterator[str]:
    """Yield the config classes that a round is about, and those that its kept splits are for; if
    `later`, also of splits that were approved after the round.
    """
    yield f"- scope: {line(round.scope)}"
    for keep in view.history.keeps:
        if keep.round == round.n and keep.commit in view.splits and (
                later or measured.is_within(keep, round)):
            kernels = "; ".join(split.summary for split in view.splits[keep.commit])
            yield f"- kept for: {line(kernels)}, in {keep.commit[:12]}"


def scope_note(scope: str, round: Round) -> str:
    """Return the note on a slot or candidate whose scope differs from its round's."""
    return f"; scope: {scope}" if scope and scope != round.scope else ""


def review(record: StagnationRecord | None) -> list[str]:
    """Return the section on the stagnation review before a round, if there was one."""
    if record is None:
        return []
    return [f"## Stagnation: {record.depth}", "",
            f"The last {record.rounds_without_gain} rounds kept nothing. {line(record.demands)}",
            "", "New directions:", *(f"- {line(text)}" for text in record.directions), ""]


def shown(view: JournalView, round: Round) -> tuple[DecisionRow | None, Verdict] | None:
    """Return the verdict that represents a round: the kept, else the fastest, else the last one."""
    if round.outcome == "baseline":
        verdict = measured.of_best(view.history.until(round.ended_at or round.started_at))
        return None if verdict is None else (None, verdict)
    judged = measured.of_round(view.history, round)
    kept = [pair for pair in judged if pair[0].kind == "keep"]
    timed = sorted((pair for pair in judged if pair[1].speedup is not None),
                   key=lambda pair: pair[1].speedup or 0.0)
    candidates = kept or timed or judged
    return candidates[-1] if candidates else None


def _head(view: JournalView, round: Round) -> list[str]:
    times = f"{view.stamp(round.started_at)} to {view.stamp(round.ended_at or round.started_at)}"
    return [f"# Round {round.n}", "", *scope(view, round, later=True),
            f"- incumbent: {round.incumbent}", f"- outcome: {round.outcome}",
            f"- best so far: {best(round)}", f"- time: {times}",
            f"- spent: {round.spent_s:.0f} s, {counted(round.trials, 'trial')}{cost(round.cost)}",
            "",
            line(round.summary), ""]


def _hypotheses(view: JournalView, round: Round) -> list[str]:
    if round.outcome == "baseline":
        return ["## Hypothesis", "", "None: the baseline, to which all else is compared.", ""]
    rows = [(slot.slot, slot.kind, slot.backend,
             f"{slot.hypothesis}{scope_note(slot.scope, round)}", slot.bottleneck, slot.stage,
             slot.detail) for slot in view.slots.get(round.n, ())]
    return ["## Hypotheses: one a slot", "", table(SLOTS, rows)] if rows else []


def _changes(view: JournalView, round: Round) -> list[str]:
    if round.outcome == "baseline":
        return ["## Change", "", "None: the code as it was.", ""]
    past, rows = view.history, []
    for row in past.decisions:
        if row.round == round.n:
            candidate = past.candidates.get(row.candidate)
            rows.append((row.candidate[:12], candidate.slot if candidate else "",
                         change_summary.describe(past.folder, candidate), row.kind, row.reason,
                         row.actor))
    return ["## Changes and decisions", "", table(CHANGES, rows)] if rows else []


def _results(view: JournalView, round: Round) -> Iterator[str]:
    shown_verdict = shown(view, round)
    yield from ("## Results", "")
    yield f"- measured by: {line(view.measured_by)}"
    if view.commands.quick:
        yield f"- quick command: {line(view.commands.quick)}"
    yield f"- tested by: {line(view.commands.tested_by)}"
    if shown_verdict is None:
        yield from ("- nothing was measured", "")
        return
    row, verdict = shown_verdict
    name = "the baseline" if row is None else f"candidate {row.candidate[:12]}"
    yield f"- shown: {name}, on {line(verdict.device) or 'a device without a name'}"
    yield f"- correct: {_correct(verdict)}"
    if row is not None:
        yield f"- against the best before it: {measured.change(verdict)}"
    yield f"- the best against the baseline after the round: {best(round)}"
    yield from (f"- {line(evidence.kind)}: {line(evidence.detail)}" for evidence in verdict.evidence
                if evidence.kind in ("runs", "kernels", "trace", "launch", "score"))
    rows = measured.classes_of_baseline if row is None else measured.classes
    yield from ("", rows(verdict)) if verdict.rows else ("",)


def _correct(verdict: Verdict) -> str:
    if not verdict.valid or not verdict.correct:
        return f"no: {line(verdict.rejected_reason or 'wrong results')}"
    used = verdict.error_budget_used
    return "yes, every class" + (
        "" if used is None else f"; {quantities.percent(used)} of the error allowed")


def _decision(view: JournalView, round: Round) -> Iterator[str]:
    yield from ("## Decision", "", decision(view, round), "")
    for keep in view.history.keeps:
        if keep.round == round.n:
            yield f"- {keep.commit[:12]}: {performance.why(view, keep)}: {line(keep.reason)}"
            yield ""


def _limits(view: JournalView, round: Round) -> list[str]:
    rows = [(own.id, own.kernel, own.config_class, own.limiter, value(own.metric, own.value),
             own.detail, own.advice) for own in view.bottlenecks.get(round.n, ())]
    return ["## Bottlenecks", "", table(LIMITS, rows)] if rows else []


def _transfer(view: JournalView, round: Round) -> Iterator[str]:
    yield from ("## Real-training transfer check", "")
    checks = transfer_check.of_round(view.history, round.n)
    if not checks:
        yield from ("- nothing to check: no change of this round was measured", "")
    for candidate, check in checks:
        kept = any(keep.candidate == candidate for keep in view.history.keeps)
        yield f"- candidate: {candidate[:12]}"
        yield from (f"- {line(fact)}" for fact in check.lines(kept=kept))
        yield ""


def _rollback(view: JournalView, round: Round) -> Iterator[str]:
    if (regression := view.history.regression(round)) is not None:
        yield from ("## Regression", "", stop_summary.regressions(view, [regression]))
    if decision(view, round) != "ROLLED BACK":
        return
    yield from ("## Rollback analysis", "")
    judged = shown(view, round)
    if judged is None or judged[0] is None:
        yield from (f"- {line(round.summary)}", "")
        return
    row, verdict = judged[0], judged[1]
    candidate = view.history.candidates.get(row.candidate)
    if candidate is not None:
        yield f"- expected: {line(candidate.hypothesis)}"
        yield f"- aimed at: {line(candidate.bottleneck) or 'no single bottleneck'}"
    yield f"- seen: {measured.speedup(verdict)}; {line(row.reason)}"
    yield from (f"- note: {line(note)}" for note in verdict.notes[:3])
    yield ""


def _lessons(view: JournalView, round: Round) -> list[str]:
    lessons = [f"- {line(own.text)}" for own in view.lessons if own.round == round.n]
    return ["## Reusable lessons", "", *lessons, ""] if lessons else []


def _next(view: JournalView, round: Round) -> Iterator[str]:
    """Yield the next round's directions; until these are known, this round's bottlenecks."""
    next_review = view.reviews.get(round.n + 1)
    directions = list(next_review.directions) if next_review else [
        f"{own.limiter}{' in ' + own.config_class if own.config_class else ''}: {own.advice}"
        for own in view.bottlenecks.get(round.n + 1, ()) or view.bottlenecks.get(round.n, ())]
    if directions:
        yield from ("## Next direction", "", *(f"- {line(text)}" for text in directions[:3]), "")
