"""optimize.md: what a campaign is about, then its rounds and stops as they came. It only grows."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history import change_summary
from engine.history.campaign_view import JournalView, ProgramNotRun, TipsRead
from engine.journal.records import Round, VerdictRow
from engine.judge.recorded_values import verdict_of
from engine.markdown import line
from engine.records import final_report, measured, performance, round_summary, stop_summary
from harness.formats.quantities import counted
from harness.verdict import Verdict

LogEntry = tuple[float, str]
"""When something happened, and its text."""


def page(view: JournalView) -> str:
    """Return optimize.md."""
    entries = [*_tips(view), *_rounds(view), *_approvals(view),
               *((row.at, "\n".join(end_to_end(view, row))) for row in view.end_to_end),
               *((at, "\n".join(not_run(view, record))) for at, record in view.not_run),
               *_rollbacks(view), *((at, _stop(view, at)) for at, _ in view.stops)]
    entries.sort(key=lambda entry: entry[0])
    parts = ["\n".join(_head(view)), *(text for _, text in entries)]
    return "".join(f"{text.rstrip()}\n\n" for text in parts)


def _head(view: JournalView) -> Iterator[str]:
    row = view.row
    yield from (f"# {line(row.op)} in {line(row.backend or row.lang)}: the campaign's log", "",
                f"- campaign: {line(row.id)}", f"- target: {line(row.op)}",
                f"- language: {line(row.lang)}; backend: {line(row.backend)}",
                f"- GPU: {line(row.gpu)} ({line(row.device)})",
                f"- project: {line(row.project)}, commit {row.base_commit}",
                f"- measured by: {line(view.measured_by)}",
                f"- tested by: {line(view.commands.tested_by)}",
                f"- started: {view.stamp(row.created_at)}")


def _tips(view: JournalView) -> Iterator[LogEntry]:
    for at, tips in view.tips:
        yield at, "\n".join(tips_read(tips))


def tips_read(tips: TipsRead) -> Iterator[str]:
    """Yield the section on the lessons of earlier campaigns."""
    yield from ("## Tips read before the baseline", "", f"- {line(tips.summary)}")
    yield from (f"- {line(lesson)}" for lesson in tips.lessons)


def _rounds(view: JournalView) -> Iterator[LogEntry]:
    for round in view.history.rounds:
        if round.ended_at is not None:
            yield round.ended_at, "\n".join(_round(view, round))


def _round(view: JournalView, round: Round) -> Iterator[str]:
    yield from (f"## Round {round.n}: {round.outcome}", "",
                f"{line(round.summary)}; best {round_summary.best(round)}", "",
                f"- time: {view.stamp(round.ended_at or round.started_at)}",
                *round_summary.scope(view, round))
    if round.outcome == "baseline":
        yield from _baseline(view)
    else:
        yield from _attempts(view, round)
    yield from (f"- details: rounds/round-{round.n}/summary.md", "")
    yield from round_summary.review(view.reviews.get(round.n))


def _baseline(view: JournalView) -> Iterator[str]:
    first = measured.baseline(view.history)
    if first is None:
        return
    verdict = verdict_of(first)
    yield f"- commit: {view.history.base}"
    yield (f"- correct: {'yes' if verdict.correct else 'no'}, "
           f"{counted(len(verdict.rows), 'config class')}")
    yield from ("", measured.classes_of_baseline(verdict))


def _attempts(view: JournalView, round: Round) -> Iterator[str]:
    """Yield the hypothesis, change, result, test and decision of each candidate."""
    for decision, verdict in measured.of_round(view.history, round):
        candidate = view.history.candidates.get(decision.candidate)
        scope = round_summary.scope_note(view.scopes.get(decision.candidate, ""), round)
        yield f"- hypothesis: {line(candidate.hypothesis) if candidate else decision.candidate}" \
            f"{line(scope)}"
        yield f"  - changes: {line(change_summary.describe(view.history.folder, candidate))}"
        yield f"  - result: {measured.change(verdict)}; " \
            f"test {'PASS' if verdict.correct else 'FAIL'}"
        yield f"  - decision: {decision.kind}: {line(decision.reason)}"


def _approvals(view: JournalView) -> Iterator[LogEntry]:
    """Yield the decisions of people, which may come long after their round has ended."""
    for decision in view.history.decisions:
        if decision.actor != "engine":
            commit = f" as commit {decision.commit[:12]}" if decision.commit else ""
            why = performance.why(view, decision) if decision.kind == "keep" \
                else line(decision.reason)
            yield decision.at, f"## {decision.kind}, decided by {line(decision.actor)}\n\n" \
                f"- {view.stamp(decision.at)}: candidate {decision.candidate[:12]}{commit}: {why}"


def _rollbacks(view: JournalView) -> Iterator[LogEntry]:
    """Yield the commits that failed their final acceptance."""
    for rollback in view.history.rollbacks:
        undone = ", ".join(commit[:12] for commit in rollback.undone)
        yield rollback.at, (
            f"## Rolled back to {rollback.commit[:12]}\n\n- time: {view.stamp(rollback.at)}\n"
            f"- {line(stop_summary.rollback_reason(rollback))}\n"
            f"- kept before, and not in the result: {undone}")


def end_to_end(view: JournalView, row: VerdictRow) -> Iterator[str]:
    """Yield the section on runs of the whole program, baseline against best."""
    verdict = verdict_of(row)
    yield from ("## End to end", "", f"- commit: {row.candidate}")
    if view.commands.end_to_end:
        yield f"- command: {line(view.commands.end_to_end)}"
    yield f"- result: {end_to_end_result(verdict)}"
    yield from (f"- {line(note)}" for note in verdict.notes)
    yield from ("", measured.classes(verdict)) if verdict.rows else ("",)


def not_run(view: JournalView, record: ProgramNotRun) -> Iterator[str]:
    """Yield the section that says why the whole program was not run."""
    yield from ("## End to end", "", f"- commit: {record.commit}",
                f"- command: {line(view.commands.end_to_end)}", f"- result: {line(record.message)}")


def end_to_end_result(verdict: Verdict) -> str:
    """Return the whole program's gain, or why it is not known."""
    if verdict.speedup is None:
        return f"not measured: {line(verdict.rejected_reason or 'it was not timed')}"
    is_slower = (verdict.speedup_high or 1.0) < 1
    return measured.speedup(verdict) + (
        ": the program is slower, although the kernel is faster" if is_slower else "")


def _stop(view: JournalView, at: float) -> str:
    """Return the Stop Summary and the Final Report of a stop."""
    stop = dict(view.stops)[at]
    return f"{stop_summary.summary(view, at, stop)}\n" + "\n".join(
        final_report.lines(view, at, stop))
