"""rounds/round-N/summary.md: what a round tried, what was measured, what came of it, and why."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history import change_summary
from engine.history.campaign_view import JournalView, StagnationRecord
from engine.journal.records import DecisionRow, Round
from engine.markdown import cost, line, table
from engine.records import measured, performance, scope, stop_summary, transfer_check
from harness.verdict import Verdict

SLOTS = ("slot", "kind", "worker", "hypothesis", "bottleneck", "came to", "detail")
CHANGES = ("candidate", "slot", "change", "decision", "reason", "by")
LIMITS = ("id", "kernel", "class", "limiter", "value", "detail", "advice")
OUTCOMES = {"baseline": "BASELINE", "keep": "ACCEPTED", "tie": "ROLLED BACK",
            "regression": "ROLLED BACK", "failed": "ROLLED BACK"}
"""What a round's outcome means for the line of kept commits."""


def page(story: JournalView, round: Round) -> str:
    """Return a round's summary.md."""
    lines = [*_head(story, round), *review(story.reviews.get(round.n)), *_hypotheses(story, round),
             *_changes(story, round), *_results(story, round), *_decision(story, round),
             *_limits(story, round), *_transfer(story, round), *_rollback(story, round),
             *_lessons(story, round), *_next(story, round)]
    return "\n".join(lines).rstrip() + "\n"


def best(round: Round) -> str:
    return "not measured" if round.best_speedup is None else f"{round.best_speedup:.2f}x"


def decision(story: JournalView, round: Round) -> str:
    """Return ACCEPTED, ROLLED BACK or BASELINE; what a person kept later counts."""
    later = any(keep.round == round.n for keep in story.history.keeps)
    return "ACCEPTED" if later else OUTCOMES.get(round.outcome or "", "not ended")


def value(metric: str, number: float | None) -> str:
    return "" if number is None else f"{number:.4g} {metric}"


def review(told: StagnationRecord | None) -> list[str]:
    """Return the section on the stagnation review that a round began with, if it did."""
    if told is None:
        return []
    return [f"## Stagnation: {told.depth}", "",
            f"{told.rollbacks} rounds in a row were rolled back. {line(told.demands)}", "",
            "New directions:", *(f"- {line(text)}" for text in told.directions), ""]


def _head(story: JournalView, round: Round) -> list[str]:
    times = f"{story.stamp(round.started_at)} to {story.stamp(round.ended_at or round.started_at)}"
    return [f"# Round {round.n}", "", *scope.of_round(story, round, later=True),
            f"- incumbent: {round.incumbent}", f"- outcome: {round.outcome}",
            f"- best so far: {best(round)}", f"- time: {times}",
            f"- spent: {round.spent_s:.0f} s, {round.trials} trials{cost(round.cost)}", "",
            line(round.summary), ""]


def _hypotheses(story: JournalView, round: Round) -> list[str]:
    if round.outcome == "baseline":
        return ["## Hypothesis", "", "None: the baseline, to which all else is compared.", ""]
    rows = [(s.slot, s.kind, s.backend, f"{s.hypothesis}{scope.beside(s.scope, round)}",
             s.bottleneck, s.stage, s.detail)
            for s in story.slots.get(round.n, ())]
    return ["## Hypotheses: one a slot", "", table(SLOTS, rows)] if rows else []


def _changes(story: JournalView, round: Round) -> list[str]:
    if round.outcome == "baseline":
        return ["## Change", "", "None: the code as it was.", ""]
    past, rows = story.history, []
    for told in (d for d in past.decisions if d.round == round.n):
        candidate = past.candidates.get(told.candidate)
        rows.append(
            (
                told.candidate[:12],
                candidate.slot if candidate else "",
                change_summary.describe(past.folder, candidate),
                told.kind,
                told.reason,
                told.actor,
            )
        )
    return ["## Changes and decisions", "", table(CHANGES, rows)] if rows else []


def shown(story: JournalView, round: Round) -> tuple[DecisionRow | None, Verdict] | None:
    """Return the verdict that stands for a round: the kept one, the fastest right one, the last."""
    if round.outcome == "baseline":
        found = measured.of_best(story.history.until(round.ended_at or round.started_at))
        return None if found is None else (None, found)
    all_told = measured.of_round(story.history, round)
    kept = [pair for pair in all_told if pair[0].kind == "keep"]
    right = sorted((pair for pair in all_told if pair[1].speedup is not None),
                   key=lambda pair: pair[1].speedup or 0.0)
    chosen = kept or right or all_told
    return chosen[-1] if chosen else None


def _results(story: JournalView, round: Round) -> Iterator[str]:
    found = shown(story, round)
    yield from ("## Results", "")
    yield f"- measured by: {line(story.measured_by)}"
    if story.commands.quick:
        yield f"- quick command: {line(story.commands.quick)}"
    yield f"- tested by: {line(story.commands.tested_by)}"
    if found is None:
        yield from ("- nothing was measured", "")
        return
    told, verdict = found
    name = "the baseline" if told is None else f"candidate {told.candidate[:12]}"
    yield f"- shown: {name}, on {line(verdict.device) or 'a device without a name'}"
    yield f"- correct: {_correct(verdict)}"
    if told is not None:
        yield f"- against the best before it: {measured.change(verdict)}"
    yield f"- the best against the baseline after the round: {best(round)}"
    yield from (f"- {line(e.kind)}: {line(e.detail)}" for e in verdict.evidence
                if e.kind in ("runs", "kernels", "trace", "launch", "score"))
    rows = measured.classes_of_baseline if told is None else measured.classes
    yield from ("", rows(verdict)) if verdict.rows else ("",)


def _correct(verdict: Verdict) -> str:
    if not verdict.valid or not verdict.correct:
        return f"no: {line(verdict.rejected_reason or 'wrong results')}"
    used = verdict.error_budget_used
    return "yes, every class" + ("" if used is None else f"; {used:.0%} of the error allowed")


def _decision(story: JournalView, round: Round) -> Iterator[str]:
    yield from ("## Decision", "", decision(story, round), "")
    for keep in story.history.keeps:
        if keep.round == round.n:
            yield f"- {keep.commit[:12]}: {performance.why(story, keep)}: {line(keep.reason)}"
            yield ""


def _limits(story: JournalView, round: Round) -> list[str]:
    found = [(b.id, b.kernel, b.config_class, b.limiter, value(b.metric, b.value), b.detail,
              b.advice) for b in story.bottlenecks.get(round.n, ())]
    return ["## Bottlenecks", "", table(LIMITS, found)] if found else []


def _transfer(story: JournalView, round: Round) -> Iterator[str]:
    yield from ("## Real-training transfer check", "")
    found = transfer_check.of_round(story.history, round.n)
    if not found:
        yield from ("- nothing to check: no change of this round was measured", "")
    for candidate, check in found:
        kept = any(keep.candidate == candidate for keep in story.history.keeps)
        yield f"- candidate: {candidate[:12]}"
        yield from (f"- {line(told)}" for told in check.lines(kept=kept))
        yield ""


def _rollback(story: JournalView, round: Round) -> Iterator[str]:
    if (lost := story.history.regression(round)) is not None:
        yield from ("## Regression", "", stop_summary.regressions(story, [lost]))
    if decision(story, round) != "ROLLED BACK":
        return
    yield from ("## Rollback analysis", "")
    found = shown(story, round)
    if found is None or found[0] is None:
        yield from (f"- {line(round.summary)}", "")
        return
    candidate = story.history.candidates.get(found[0].candidate)
    if candidate is not None:
        yield f"- expected: {line(candidate.hypothesis)}"
        yield f"- aimed at: {line(candidate.bottleneck) or 'no single bottleneck'}"
    yield f"- seen: {measured.speedup(found[1])}; {line(found[0].reason)}"
    yield from (f"- note: {line(note)}" for note in found[1].notes[:3])
    yield ""


def _lessons(story: JournalView, round: Round) -> list[str]:
    found = [lesson for lesson in story.lessons if lesson.round == round.n]
    return ["## Reusable lessons", "", *(f"- {line(lesson.text)}" for lesson in found), ""] \
        if found else []


def _next(story: JournalView, round: Round) -> Iterator[str]:
    """Yield the next round's directions, once they are known; until then this one's."""
    again = story.reviews.get(round.n + 1)
    told = list(again.directions) if again else [
        f"{b.limiter}{' in ' + b.config_class if b.config_class else ''}: {b.advice}"
        for b in story.bottlenecks.get(round.n + 1, ()) or story.bottlenecks.get(round.n, ())]
    if told:
        yield from ("## Next direction", "", *(f"- {line(text)}" for text in told[:3]), "")
