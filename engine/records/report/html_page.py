"""The report as one HTML file that needs no other: no script, no network, charts inside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from engine.history.campaign_view import JournalView
from engine.journal.records import DecisionRow
from engine.judge.recorded_values import verdict_of
from engine.records import (
    class_history,
    final_report,
    measured,
    optimize_log,
    performance,
    round_summary,
    transfer_audit,
)
from engine.records.report import charts, report_rows
from engine.records.report.charts import Chart, ProgressPoint, SpeedupBar
from engine.records.report.page import Headline, PageSection, PageTable, render
from engine.records.transfer_audit import Audit
from harness.formats import quantities
from harness.formats.quantities import counted
from harness.verdict import Row

KEPT = ("round", "commit", "gain", "call time", "GPU time", "why", "decided by")
CLASSES = ("class", "baseline", "best", "gain", "% of roofline")
AUDIT = ("round", "commit", "bucket", "cache keys", "benchmark gain", "estimated real gain",
         "derivation", "decision")


def html(view: JournalView) -> str:
    """Return the report as one HTML document."""
    tried = report_rows.tried(view)
    sections = [
        PageSection(tables=[PageTable(rows=report_rows.facts(view))]), *_progress(view),
        _kept(view), *_classes(view),
        *_table("History by config class", class_history.HEAD, report_rows.history(view)),
        *_end_to_end(view), *_not_run(view), *_audit(transfer_audit.of(view.history)),
        *_table("What limits it now", report_rows.LIMITS, report_rows.limits(view)), *_next(view),
        PageSection(heading="What was tried", tables=[PageTable(
            head=report_rows.TRIED, rows=tried, summary=counted(len(tried), "decision"))]),
        *_tips(view), *_stop(view)]
    row = view.row
    return render(f"{row.op} on {row.device or row.gpu}", _headline(view), sections)


def _headline(view: JournalView) -> Headline:
    row = view.row
    if row.speedup is None or row.best_commit == row.base_commit:
        return Headline(words=report_rows.without_gain(row))
    return Headline(gain=quantities.ratio(row.speedup), interval=quantities.speedup(
        row.speedup, row.speedup_low, row.speedup_high,
        measured.alpha(measured.of_headline(view.history))))


def _progress(view: JournalView) -> Iterator[PageSection]:
    points: list[ProgressPoint] = []
    for round in view.history.rounds:
        if round.ended_at is None:
            continue
        shown = round_summary.shown(view, round)
        tried = shown[1].speedup if shown and shown[0] is not None else None
        own = "" if tried is None else \
            f", its best try {quantities.ratio(tried)} against the best before it"
        points.append(ProgressPoint(
            round=round.n, outcome=round.outcome or "", tried=tried,
            best=round.best_speedup or (points[-1].best if points else 1.0),
            title=f"round {round.n}: {round.outcome}{own}"))
    if chart := charts.progress(points):
        signs = ", ".join(f"{sign} {word}" for word, sign in charts.SIGNS.items()
                          if word != "baseline")
        yield PageSection(heading="Progress", charts=[chart], style="note", paragraphs=[
            f"The line is the best; a sign is what its round tried: {signs}."])


def _kept(view: JournalView) -> PageSection:
    rows = [_keep(view, keep) for keep in view.history.keeps]
    return next(_table("What was kept, and why", KEPT, rows), PageSection(
        heading="What was kept, and why", paragraphs=["Nothing."]))


def _keep(view: JournalView, keep: DecisionRow) -> tuple[str, ...]:
    row = view.history.verdicts.get(keep.verdict or 0)
    times = ("", "") if row is None else measured.latencies(verdict_of(row), view.history.score)
    undone = "rolled back: " if keep.commit in view.history.undone else ""
    return (str(keep.round), keep.commit[:12], measured.recorded_speedup(row), *times,
            undone + performance.why(view, keep), keep.actor)


def _classes(view: JournalView) -> Iterator[PageSection]:
    verdict = measured.of_best(view.history)
    if verdict is None or not verdict.rows or view.history.best == view.history.base:
        return
    sure = "" if verdict.alpha is None else f", intervals{quantities.alpha_level(verdict.alpha)}"
    chart = charts.speedups(
        [SpeedupBar(name=row.config_class, value=math.exp(row.log_ratio), low=_exp(row.low),
                 high=_exp(row.high)) for row in verdict.rows if row.log_ratio is not None],
        f"SpeedupBar of the best against the baseline, by config class{sure}")
    yield PageSection(heading="Config classes", charts=_drawn(chart), tables=[
        PageTable(head=CLASSES, rows=[_class(row) for row in verdict.rows])])


def _class(row: Row) -> tuple[str, ...]:
    return (measured.class_name(row), quantities.latency_us(measured.before(row)),
            quantities.latency_us(row.latency_us), quantities.gain(row.log_ratio),
            measured.roofline_share(row))


def _end_to_end(view: JournalView) -> Iterator[PageSection]:
    for row in view.end_to_end[-1:]:
        verdict = verdict_of(row)
        yield PageSection(heading="End to end", tables=[
            PageTable(rows=[
                ("commit", row.candidate), ("command", view.commands.end_to_end),
                ("result", optimize_log.end_to_end_result(verdict)),
                *(("note", note) for note in verdict.notes)]),
            PageTable(head=CLASSES, rows=[(*_class(row)[:4], "") for row in verdict.rows])])


def _not_run(view: JournalView) -> Iterator[PageSection]:
    if (record := view.program_not_run) is not None:
        yield PageSection(heading="End to end", tables=[PageTable(rows=[
            ("commit", record.commit), ("command", view.commands.end_to_end),
            ("result", record.message)])])


def _audit(audit: Audit) -> Iterator[PageSection]:
    heading = "Real-training applicability audit"
    if not audit.kept:
        yield PageSection(heading=heading,
                          paragraphs=["Nothing was kept: there is nothing to audit."])
        return
    sums = [("S_real, kernels", audit.s_real), ("W_real, caches of weights", audit.w_real),
            ("believed in real training", audit.believed)] if audit.attributed else []
    if audit.headline is not None:
        sums.append(("headline, as measured", audit.headline))
    chart = charts.speedups([SpeedupBar(name=name, value=math.exp(value)) for name, value in sums],
                            "What of the headline carries over to real training or serving")
    yield PageSection(heading=heading, charts=_drawn(chart), tables=[
        PageTable(head=AUDIT, rows=[
            (str(kept.round), kept.commit[:12], kept.check.bucket,
             "; ".join(kept.check.audit.cache_keys) if kept.check.audit else "",
             quantities.gain(kept.check.measured), quantities.gain(kept.check.real),
             kept.check.derivation, kept.check.decision) for kept in audit.kept]),
        PageTable(rows=[*((name, quantities.gain(value)) for name, value in sums),
                        ("R_real, over-fitted", quantities.gain(0.0)),
                        ("inflation gap", audit.inflation_verdict())])])
    yield PageSection(style="warning", paragraphs=list(audit.advice()))


def _next(view: JournalView) -> Iterator[PageSection]:
    if ideas := final_report.ideas(view, view.history):
        yield PageSection(heading="What to try next", items=ideas)


def _tips(view: JournalView) -> Iterator[PageSection]:
    for _, tips in view.tips[:1]:
        if tips.lessons:
            yield PageSection(heading="Tips read before the baseline", paragraphs=[tips.path],
                          items=tips.lessons)


def _stop(view: JournalView) -> Iterator[PageSection]:
    for at, stop in view.stops[-1:]:
        past = view.history.until(at)
        yield PageSection(heading="Stop summary", tables=[PageTable(rows=[
            ("stopped", view.stamp(at)), ("because", stop.outcome), ("best commit", past.best),
            ("best", measured.metrics(past)),
            ("spent", f"{stop.wall_s:.0f} s, {counted(stop.trials, 'trial')}"),
            ("waiting for a person", str(stop.waiting))])])


def _table(heading: str, head: Sequence[str], rows: Sequence[Sequence[str]],
           ) -> Iterator[PageSection]:
    """Yield a section with a table, nothing without rows."""
    if rows:
        yield PageSection(heading=heading, tables=[PageTable(head=head, rows=rows)])


def _drawn(chart: Chart | None) -> list[Chart]:
    return [] if chart is None else [chart]


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
