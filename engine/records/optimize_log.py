"""optimize.md: what a campaign is about, then its rounds and stops as they came. It only grows."""

from __future__ import annotations

from collections.abc import Iterator

from engine.history import change_summary
from engine.history.campaign_view import JournalView, ProgramNotRun, TipsRead
from engine.journal.records import Round, VerdictRow
from engine.markdown import line
from engine.records import final_report, measured, performance, round_summary, scope, stop_summary
from harness.verdict import Verdict

Entry = tuple[float, str]
"""When something happened, and what is said of it."""


def page(story: JournalView) -> str:
    """Return optimize.md."""
    entries = [*_tips(story), *_rounds(story), *_approvals(story),
               *((row.at, "\n".join(end_to_end(story, row))) for row in story.end_to_end),
               *((at, "\n".join(not_run(story, told))) for at, told in story.not_run),
               *_rollbacks(story), *((at, _stop(story, at)) for at, _ in story.stops)]
    parts = ["\n".join(_head(story)), *(text for _, text in sorted(entries, key=lambda e: e[0]))]
    return "".join(f"{text.rstrip()}\n\n" for text in parts)


def _head(story: JournalView) -> Iterator[str]:
    row = story.row
    yield from (f"# {line(row.op)} in {line(row.backend or row.lang)}: the campaign's log", "",
                f"- campaign: {line(row.id)}", f"- target: {line(row.op)}",
                f"- language: {line(row.lang)}; backend: {line(row.backend)}",
                f"- GPU: {line(row.gpu)} ({line(row.device)})",
                f"- project: {line(row.project)}, commit {row.base_commit}",
                f"- measured by: {line(story.measured_by)}",
                f"- tested by: {line(story.commands.tested_by)}",
                f"- started: {story.stamp(row.created_at)}")


def _tips(story: JournalView) -> Iterator[Entry]:
    for at, told in story.tips:
        yield at, "\n".join(tips_read(told))


def tips_read(told: TipsRead) -> Iterator[str]:
    """Yield the section on what an earlier campaign had learned."""
    count = len(told.lessons)
    more = f"; {told.left_out} older ones were left out" if told.left_out else ""
    yield from ("## Tips read before the baseline", "")
    yield f"- {line(told.path)}: {count or 'no'} lesson{'' if count == 1 else 's'}{more}"
    yield from (f"- {line(lesson)}" for lesson in told.lessons)


def _rounds(story: JournalView) -> Iterator[Entry]:
    for round in story.history.rounds:
        if round.ended_at is not None:
            yield round.ended_at, "\n".join(_round(story, round))


def _round(story: JournalView, round: Round) -> Iterator[str]:
    yield from (f"## Round {round.n}: {round.outcome}", "",
                f"{line(round.summary)}; best {round_summary.best(round)}", "",
                f"- time: {story.stamp(round.ended_at or round.started_at)}",
                *scope.of_round(story, round))
    if round.outcome == "baseline":
        yield from _baseline(story)
    else:
        yield from _tries(story, round)
    yield from (f"- details: rounds/round-{round.n}/summary.md", "")
    yield from round_summary.review(story.reviews.get(round.n))


def _baseline(story: JournalView) -> Iterator[str]:
    first = measured.baseline(story.history)
    if first is None:
        return
    verdict = first.decode()
    yield f"- commit: {story.history.base}"
    yield f"- correct: {'yes' if verdict.correct else 'no'}, {len(verdict.rows)} config classes"
    yield from ("", measured.classes_of_baseline(verdict))


def _tries(story: JournalView, round: Round) -> Iterator[str]:
    """Yield what the round tried: hypothesis, change, result, test and decision of each."""
    for told, verdict in measured.of_round(story.history, round):
        candidate = story.history.candidates.get(told.candidate)
        yield f"- hypothesis: {line(candidate.hypothesis) if candidate else told.candidate}" \
            f"{line(scope.of_candidate(story, told.candidate, round))}"
        yield f"  - changes: {line(change_summary.describe(story.history.folder, candidate))}"
        yield f"  - result: {measured.change(verdict)}; " \
            f"test {'PASS' if verdict.correct else 'FAIL'}"
        yield f"  - decision: {told.kind}: {line(told.reason)}"


def _approvals(story: JournalView) -> Iterator[Entry]:
    """Yield what people decided, which may be long after a round had ended."""
    for told in story.history.decisions:
        if told.actor != "engine":
            commit = f" as commit {told.commit[:12]}" if told.commit else ""
            why = performance.why(story, told) if told.kind == "keep" else line(told.reason)
            yield told.at, f"## {told.kind}, decided by {line(told.actor)}\n\n" \
                f"- {story.stamp(told.at)}: candidate {told.candidate[:12]}{commit}: {why}"


def _rollbacks(story: JournalView) -> Iterator[Entry]:
    """Yield where the best failed its final acceptance and gave way."""
    for one in story.history.rollbacks:
        undone = ", ".join(commit[:12] for commit in one.undone)
        yield (
            one.at,
            f"## Rolled back to {one.commit[:12]}\n\n- time: {story.stamp(one.at)}\n"
            f"- {line(stop_summary.rolled_back(one))}\n"
            f"- kept before, and not in the result: {undone}",
        )


def end_to_end(story: JournalView, row: VerdictRow) -> Iterator[str]:
    """Yield the section on runs of the whole program, baseline against best."""
    verdict = row.decode()
    yield from ("## End to end", "", f"- commit: {row.candidate}")
    if story.commands.end_to_end:
        yield f"- command: {line(story.commands.end_to_end)}"
    yield f"- result: {ended(verdict)}"
    yield from (f"- {line(note)}" for note in verdict.notes)
    yield from ("", measured.classes(verdict)) if verdict.rows else ("",)


def not_run(story: JournalView, told: ProgramNotRun) -> Iterator[str]:
    """Yield the section on the whole program where there was no time to run it."""
    yield from ("## End to end", "", f"- commit: {told.commit}",
                f"- command: {line(story.commands.end_to_end)}", f"- result: {line(told.message)}")


def ended(verdict: Verdict) -> str:
    """Return what the whole program gained, or why that is not known."""
    if verdict.speedup is None:
        return f"not measured: {line(verdict.rejected_reason or 'it was not timed')}"
    lost = ": what the kernel gains, the program loses" \
        if (verdict.speedup_high or 1.0) < 1 else ""
    return f"{measured.speedup(verdict)}{lost}"


def _stop(story: JournalView, at: float) -> str:
    """Return the Stop Summary and the Final Report of a stop, as things were then."""
    told = dict(story.stops)[at]
    return f"{stop_summary.summary(story, at, told)}\n" + "\n".join(
        final_report.lines(story, at, told)
    )
