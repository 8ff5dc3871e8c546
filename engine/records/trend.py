"""performance_trend.md: a line a round, which only ever grows."""

from __future__ import annotations

from engine.journal.records import Round
from engine.records import measured, summary
from engine.records.markdown import line, micros, table
from engine.records.story import Story

HEAD = ("round", "status", "what", "best candidate", "against the last best",
        "best against baseline", "finding")
STATUS = {"baseline": "BASELINE", "keep": "ACCEPTED"}


def page(story: Story) -> str:
    """Return performance_trend.md."""
    rows = [_row(story, round) for round in story.past.rounds if round.ended_at is not None]
    return f"# {line(story.campaign)}\n\n" + table(HEAD, rows)


def _row(story: Story, round: Round) -> tuple[str, ...]:
    status = STATUS.get(round.outcome or "", f"ROLLBACK ({round.outcome})")
    found = summary.shown(story, round)
    if found is None:
        return (str(round.n), status, "", "", "", summary.best(round), round.summary)
    told, verdict = found
    if told is None:
        return (str(round.n), status, "the code as it was", micros(verdict.latency_us), "",
                summary.best(round), round.summary)
    candidate = story.past.candidates.get(told.candidate)
    return (str(round.n), status, candidate.hypothesis if candidate else "",
            micros(verdict.latency_us), measured.change(verdict), summary.best(round),
            told.reason)
