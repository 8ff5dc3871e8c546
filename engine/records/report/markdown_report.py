"""A campaign's report as Markdown, from the journal alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from engine.campaign import handover
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.journal.records import Campaign
from engine.judge.recorded_values import verdict_or_none
from engine.records import class_history, final_report, measured, optimize_log, transfer_audit
from engine.records.report import report_rows
from harness.formats import quantities
from harness.formats.text import plain

MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")
CLASSES = ("class", "outcome", "before", "after", "speedup", "% of roofline")
LONGEST = {"hypothesis": 120, "reason": 200}
"""Characters of a cell, by column; 300 in other columns."""


def markdown(view: JournalView) -> str:
    """Return the report: headline, what was kept and why, what was tried, classes, the stop."""
    past = view.history
    parts = [
        _headline(view.row, past), _facts(view), _kept(past), _waiting(past), _tried(view),
        _classes(past),
        _section("History by config class", class_history.HEAD, report_rows.history(view)),
        _section("What limits it now", report_rows.LIMITS, report_rows.limits(view)),
        _end_to_end(view), transfer_audit.of(past).lines("## Real-training applicability audit"),
        final_report.next_steps(view, past, "## What to try next"), _tips(view),
        _stop(view.row, past)]
    return "\n".join("\n".join(part) for part in parts).rstrip() + "\n"


def text(value: str, limit: int = 300) -> str:
    """Return a text from outside as one line that Markdown shows unchanged."""
    return MARKUP.sub(r"\\\1", " ".join(plain(value, limit).split()))


def _headline(row: Campaign, past: CampaignHistory) -> Iterator[str]:
    yield from (f"# {text(row.op)} on {text(row.device or row.gpu)}", "")
    if row.speedup is None or row.best_commit == row.base_commit:
        yield report_rows.without_gain(row)
    else:
        alpha = measured.alpha(measured.of_headline(past))
        gain = quantities.speedup(row.speedup, row.speedup_low, row.speedup_high, alpha)
        yield f"**{gain}** as fast as the baseline; the best was measured against it directly."
    yield ""


def _facts(view: JournalView) -> Iterator[str]:
    yield from _lines(("", ""), [
        (name, f"`{value}`" if name.endswith("commit") else text(value))
        for name, value in report_rows.facts(view)])


def _kept(past: CampaignHistory) -> Iterator[str]:
    yield from ("## What was kept, and why", "")
    kept = [decision for decision in past.decisions if decision.kind == "keep"]
    for keep in kept:
        candidate = past.candidates.get(keep.candidate)
        gain = measured.recorded_speedup(past.verdicts.get(keep.verdict or 0)) or "kept"
        undone = "rolled back at the final acceptance; " if keep.commit in past.undone else ""
        yield f"- round {keep.round}, `{keep.commit[:12]}`: **{gain}** " \
            f"({undone}{text(keep.reason)}; decided by {text(keep.actor)})"
        if candidate is not None and candidate.hypothesis:
            attack = f" It attacks {text(candidate.bottleneck)}." if candidate.bottleneck else ""
            yield f"  {text(candidate.hypothesis)}.{attack}".replace("..", ".")
    if not kept:
        yield "Nothing."
    yield ""


def _waiting(past: CampaignHistory) -> Iterator[str]:
    waiting = [own for own in past.candidates.values() if own.state == "waiting"]
    if not waiting:
        return
    yield from ("## What waits for you", "")
    verdict_of = {row.candidate: row for row in past.verdicts.values()}  # the newest of each
    for candidate in waiting:
        name = candidate.id[:12]
        yield f"- `{name}` {measured.recorded_speedup(verdict_of.get(candidate.id))} " \
            f"{text(candidate.hypothesis)} ({text(candidate.reason)}): `kopt approve {name}`"
    yield ""


def _tried(view: JournalView) -> Iterator[str]:
    counts = Counter(decision.kind for decision in view.history.decisions)
    yield from ("## What was tried", "", ", ".join(
        f"{count} {kind}" for kind, count in counts.most_common()) or "Nothing was judged.", "")
    yield from _table(report_rows.TRIED, report_rows.tried(view))


def _classes(past: CampaignHistory) -> Iterator[str]:
    """Yield the classes of the newest headline verdict; without one, of the newest keep's."""
    undone = {commit[:12] for commit in past.undone}
    newest = next((row for row in reversed(past.verdicts.values()) if row.purpose == "headline"
                   and row.candidate not in undone), None)
    kept = [past.verdicts[keep.verdict] for keep in past.decisions if keep.kind == "keep"
            and keep.verdict in past.verdicts and keep.commit not in past.undone]
    chosen = newest or (kept[-1] if kept else None)
    verdict = verdict_or_none(chosen) if chosen is not None else None
    if verdict is None or not verdict.rows:
        return
    against = "the baseline" if newest else "what was best before it"
    sure = f"; intervals{quantities.alpha_level(verdict.alpha)}" if verdict.alpha else ""
    yield from ("## Config classes", "",
                f"The best commit against {against}; latencies in microseconds{sure}.", "")
    yield from _table(CLASSES, [(
        measured.class_name(row), row.outcome, _number(measured.before(row)),
        _number(row.latency_us), quantities.speedup_of_log(row.log_ratio, row.low, row.high),
        _number(row.pct_of_roofline)) for row in verdict.rows])


def _end_to_end(view: JournalView) -> Iterator[str]:
    for row in view.end_to_end[-1:]:
        yield from (*optimize_log.end_to_end(view, row), "")
    if (record := view.program_not_run) is not None:
        yield from (*optimize_log.not_run(view, record), "")


def _tips(view: JournalView) -> Iterator[str]:
    for _, tips in view.tips[:1]:
        if tips.lessons:
            yield from (*optimize_log.tips_read(tips), "")


def _stop(row: Campaign, past: CampaignHistory) -> Iterator[str]:
    rounds = f" of {row.rounds_max}" if row.rounds_max else ""
    reason = f": {text(row.outcome)}." if row.outcome else "."
    yield from ("## Stop summary", "",
                f"The campaign is {row.state} after round {row.round}{rounds}{reason}")
    losses = Counter(decision.kind for decision in past.decisions
                     if decision.kind in ("tie", "regression", "reject"))
    if losses:
        counts = ", ".join(f"{count} {kind}" for kind, count in losses.most_common())
        yield f"What did not work: {counts}; the table above has each reason."
    if row.state in ("finished", "stopped", "failed", "waiting") \
            and row.best_commit != row.base_commit:
        yield f"`{handover.command(row)}` takes the result over."
    yield ""


def _section(heading: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield from (f"## {heading}", "", *_table(head, rows))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table whose cells are escaped here; nothing without rows."""
    if rows:
        yield from _lines(head, [[_cell(column, cell) for column, cell in
                                  zip(head, row, strict=True)] for row in rows])


def _cell(column: str, cell: str) -> str:
    if column in report_rows.CODE:
        name, _, note = cell.partition(" ")
        return f"`{name}` {note}".rstrip()
    return cell if column == "speedup" else text(cell, LONGEST.get(column, 300))


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
