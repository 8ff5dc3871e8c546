"""A campaign's report from its journal alone, as one HTML file or as Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from engine.campaign import handover
from engine.history import waiting_line
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.journal import model_costs
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow
from engine.journal.records import Campaign
from engine.judge.attribution import before
from engine.judge.judge import describe_rows
from engine.records import (
    class_history,
    measured,
    optimize_log,
    present_limits,
    round_summary,
    transfer_audit,
)
from engine.records.report import charts
from engine.records.report.charts import ProgressPoint, SpeedupBar
from engine.records.report.page import Headline, PageSection, PageTable, render_html, render_report
from engine.records.transfer_audit import Audit
from harness.formats import quantities
from harness.formats.quantities import counted
from harness.timing.outcome import row_interval, row_word
from harness.verdict import Row

TRIED = ("round", "slot", "candidate", "decision", "speedup", "hypothesis", "reason")
LIMITS = ("where", "limiter", "value", "found", "advice")
CLASSES = ("class", "outcome", "before", "after", "gain", "% of roofline")


def html(view: JournalView) -> str:
    """Return the report as one HTML document with charts."""
    return render_html(_title(view.row), _headline(view), _sections(view))


def markdown(view: JournalView) -> str:
    """Return the report as Markdown."""
    return render_report(_title(view.row), _headline(view), _sections(view))


def _title(row: Campaign) -> str:
    return f"{row.op} on {row.device or row.gpu}"


def _sections(view: JournalView) -> list[PageSection]:
    past = view.history
    return [
        PageSection(tables=[PageTable(rows=_facts(view))]), _progress(view), _kept(view),
        _waiting(past), _tried(view), *_classes(past),
        PageSection(heading="Reference lines", paragraphs=measured.reference_notes(view), tables=[
            PageTable(head=measured.REFERENCES, rows=measured.reference_rows(past))]),
        _table("History by config class", class_history.HEAD, class_history.rows(past)),
        _table("What models cost", model_costs.HEAD, model_costs.rows(view.costs)),
        *_end_to_end(view), *_audit(transfer_audit.of(past)),
        _table("What limits the provisional best now" if view.provisional else
               "What limits it now", LIMITS, _limits(past)),
        PageSection(heading="What to try next", items=[
            *optimize_log.near_gains(past), *optimize_log.ideas(view, past)]),
        *(PageSection(heading="Tips read before the baseline", paragraphs=[tips.summary],
                      items=tips.lessons) for _, tips in view.tips[:1] if tips.lessons),
        _stop(view)]


def _limits(past: CampaignHistory) -> list[tuple[str, ...]]:
    limits = list({msgspec.structs.replace(limit, id="", rank=0): limit
                   for limit in present_limits.of_best(past)}.values())
    return [(f"{limit.kernel} {limit.config_class}".strip(), limit.limiter,
             present_limits.value(limit), limit.detail, advice)
            for limit, advice in zip(limits, present_limits.advice_once(limits), strict=True)]


def _headline(view: JournalView) -> Headline:
    row = view.row
    if row.best_commit == row.base_commit:
        waits = f" Not the result: {view.provisional}." if view.provisional else ""
        kept = "No gain has been kept so far" if row.state in ("new", "running", "paused") else \
            "No gain was kept"
        return Headline(words=f"{kept}: the kernel is unchanged.{waits}")
    if row.speedup is None:
        return Headline(words="The kept commits are not accepted: their gain over the baseline is "
                              "not measured.")
    interval = quantities.speedup(row.speedup, row.speedup_low, row.speedup_high,
                                  measured.alpha(measured.of_headline(view.history)))
    if quantities.is_uncertain(row.speedup, row.speedup_low, row.speedup_high):
        return Headline(words=f"The gain of the best over the baseline is {interval}.")
    return Headline(gain=quantities.ratio(row.speedup), interval=interval)


def _facts(view: JournalView) -> list[tuple[str, str]]:
    """Return what identifies a campaign, by name."""
    row = view.row
    return [
        ("campaign", row.id), ("state", f"{view.state}: {view.outcome}".rstrip(": ")),
        ("target", f"{row.op} in {row.lang or row.backend}"),
        ("device", f"{row.device} {row.gpu}".strip()), ("from commit", row.base_commit[:12]),
        ("to commit", row.best_commit[:12]),
        *([("calls", calls)] if (calls := measured.call_times(view.history)) else []),
        *([("provisional best", view.provisional.removeprefix("provisional "))]
          if view.provisional else []),
        *(("rolled back", rollback.summary)
          for rollback in view.history.rollbacks),
        ("rounds", f"{len(view.history.attempts)}, after round 1 for the baseline"),
        ("candidates", str(len(view.history.candidates))),
        *([("models", model_costs.total(view.costs, len(view.history.standing)))] if view.costs
          else []),
        ("time", f"{view.stamp(row.created_at)} to {view.stamp(view.ended_at)}, "
                 f"{(view.ended_at - row.created_at) / 60:.0f} min")]


def _progress(view: JournalView) -> PageSection:
    points: list[ProgressPoint] = []
    for round in view.history.rounds:
        if round.ended_at is None:
            continue
        shown = round_summary.shown(view, round)
        tried = shown[1].speedup if shown and shown[0] is not None else None
        best_try = "" if tried is None else \
            f", its best try {quantities.ratio(tried)} against the best before it"
        points.append(ProgressPoint(
            round=round.n, outcome=round.outcome or "", tried=tried,
            best=round.best_speedup or (points[-1].best if points else 1.0),
            title=f"round {round.n}: {round.outcome}{best_try}"))
    return PageSection(heading="Progress", chart=charts.progress(points))


def _kept(view: JournalView) -> PageSection:
    items = [_keep(view, keep) for keep in view.history.keeps]
    return PageSection(heading="What was kept, and why", items=items,
                       paragraphs=[] if items else ["Nothing."])


def _keep(view: JournalView, keep: DecisionRow) -> str:
    row, verdict = view.history.row_of(keep), view.history.verdict_of(keep)
    call, gpu = ("", "") if verdict is None else measured.latencies(verdict, view.history.score)
    time = f", call time {call}" if call else f", GPU time {gpu}" if gpu else ""
    undone = "rolled back: " if keep.commit in view.history.undone else ""
    rows = verdict.rows if verdict else ()
    others = describe_rows([row for row in rows if row.outcome != "faster"])
    rest = f"; no gain: {others}" if others else "" if rows else f" ({keep.reason})"
    splits = "; ".join(split.conditions for split in view.splits.get(keep.commit, ()))
    return f"round {keep.round}, {keep.commit[:12]}: {measured.recorded_speedup(row) or 'kept'}" \
        f"{f' for {splits}' if splits else ''}{time}: {undone}{view.why(keep)}{rest}"


def _waiting(past: CampaignHistory) -> PageSection:
    """Return the waiting line, and the gains that wait on a base that has moved."""
    line, items = past.line, []
    moved = [candidate for candidate in past.candidates.values() if candidate.state == "waiting"
             and candidate not in line]
    for candidate in [*line, *moved]:
        then = "needs no approval itself" if candidate.state == "provisional" else \
            waiting_line.obstacle(line, candidate) or f"kopt approve {candidate.id[:12]}"
        rests = waiting_line.resting(line, candidate.id) if candidate.state == "waiting" else ""
        items.append(f"{candidate.id[:12]} {measured.recorded_speedup(past.placed(candidate.id))} "
                     f"{candidate.hypothesis} ({candidate.reason}): {then}"
                     + (f"; built on it: {rests}" if rests else ""))
    row = past.provisional_verdict
    rows = [] if row is None else [_class(class_row) for class_row in verdict_of(row).rows]
    return PageSection(
        heading="What waits for you", items=items, tables=[PageTable(head=CLASSES, rows=rows)],
        paragraphs=["The provisional best against the baseline:"] if rows else [])


def _tried(view: JournalView) -> PageSection:
    """Return every candidate with what was decided on it, in the order of the first decisions, and
    how many slots brought no candidate.
    """
    past = view.history
    decided: dict[str, list[DecisionRow]] = {}
    for decision in past.decisions:
        decided.setdefault(decision.candidate, []).append(decision)
    rows = []
    measured_rows = {id: next(filter(None, map(past.row_of, reversed(decisions))), None)
                     for id, decisions in decided.items()}
    levels = Counter(measured.alpha(row) for row in measured_rows.values() if row and row.speedup)
    usual = levels.most_common(1)[0][0] if levels else None
    for id, decisions in decided.items():
        candidate, last, row = past.candidates.get(id), decisions[-1], measured_rows[id]
        rows.append((
            str(past.round_of(last)), candidate.slot if candidate else "", id[:12],
            ", then ".join(dict.fromkeys(decision.kind for decision in decisions)) + (
                "" if last.actor == "engine" else f" by {last.actor}"),
            measured.recorded_speedup(row, usual),
            candidate.hypothesis if candidate else "", last.reason))
    for candidate in past.candidates.values():
        if candidate.id not in decided:
            newest = next((row for row in reversed(past.verdicts.values())
                           if row.candidate == candidate.id), None)
            rows.append((str(candidate.round), candidate.slot, candidate.id[:12], "not decided",
                         measured.recorded_speedup(newest, usual), candidate.hypothesis,
                         candidate.reason))
    counts = Counter(decisions[-1].kind for decisions in decided.values()).most_common()
    notes = round_summary.fruitless_slots(view)
    if usual is not None:
        notes.append(f"Intervals are{quantities.alpha_level(usual)} unless stated otherwise.")
    return PageSection(
        heading="What was tried",
        paragraphs=[", ".join(f"{n} {kind}" for kind, n in counts) or "Nothing was judged.",
                    *notes],
        tables=[PageTable(head=TRIED, rows=rows, summary=counted(len(rows), "candidate"))])


def _classes(past: CampaignHistory) -> Iterator[PageSection]:
    """Yield the classes of the best against the baseline; before that is measured, of the newest
    keep against the best before it.
    """
    best = measured.best_verdict(past)
    if best is None or past.best == past.base:
        return
    verdict, against = best
    level = f", intervals{quantities.alpha_level(verdict.alpha)}" if verdict.alpha else ""
    label = f"Speedup of the best commit against {against}, by config class{level}"
    bars = [SpeedupBar(name=row.config_class, value=math.exp(row.log_ratio), low=_exp(row.low),
                       high=_exp(row.high)) for row in verdict.rows if row.log_ratio is not None]
    if verdict.rows:
        yield PageSection(heading="Config classes", paragraphs=[f"{label}."], style="note",
                          chart=charts.speedups(bars, label), tables=[
            PageTable(head=CLASSES, rows=[_class(row) for row in verdict.rows])])


def _class(row: Row) -> tuple[str, ...]:
    return (measured.class_name(row), row_word(row),
            quantities.latency_us(before(row), row.latency_per),
            quantities.latency_us(row.latency_us, row.latency_per),
            quantities.speedup_of_log(row.log_ratio, *row_interval(row)),
            measured.roofline_share(row))


def _end_to_end(view: JournalView) -> Iterator[PageSection]:
    for row in view.end_to_end[-1:]:
        verdict = verdict_of(row)
        yield PageSection(heading="End to end", tables=[
            PageTable(rows=[
                ("commit", row.candidate), ("command", view.manifest.e2e_command),
                ("result", optimize_log.end_to_end_result(verdict)),
                *(("note", note) for note in verdict.notes)]),
            PageTable(head=CLASSES, rows=[_class(row) for row in verdict.rows])])
    if (record := view.program_not_run) is not None:
        yield PageSection(heading="End to end", tables=[PageTable(rows=[
            ("commit", record.commit), ("command", view.manifest.e2e_command),
            ("result", record.message)])])


def _audit(audit: Audit) -> Iterator[PageSection]:
    heading = "Real-training applicability audit"
    if not audit.kept:
        yield PageSection(heading=heading,
                          paragraphs=["Nothing was kept: there is nothing to audit."])
        return
    sums = [("S_real, kernels", audit.s_real), ("W_real, caches of weights", audit.w_real),
            ("real-training equivalent", audit.believed)] if audit.attributed else []
    if audit.headline is not None:
        sums.append(("headline, as measured", audit.headline))
    chart = charts.speedups([SpeedupBar(name=name, value=math.exp(value)) for name, value in sums],
                            "How much of the headline carries over to real training or serving")
    yield PageSection(heading=heading, chart=chart, items=list(audit.items()), tables=[
        PageTable(rows=audit.facts)])
    yield PageSection(style="warning", paragraphs=list(audit.advice()))


def _stop(view: JournalView) -> PageSection:
    row, rows = view.row, []
    for at, stop in view.stops[-1:]:
        past = view.history.until(at)
        rows = [("stopped", view.stamp(at)), ("because", stop.outcome), ("best commit", past.best),
                ("best", measured.metrics(past)),
                ("budget spent", f"{stop.wall_s:.0f} s, {counted(stop.trials, 'trial')}"),
                ("waiting for a person", str(stop.waiting))]
    if row.state in ("finished", "stopped", "failed", "waiting") \
            and row.best_commit != row.base_commit:
        rows.append(("merge command", handover.command(row)))
    is_open = any(round.n == row.round and round.outcome is None for round in view.history.rounds)
    reason = f": {view.outcome}" if view.outcome else ""
    place = "the baseline" if row.round == 1 else f"iteration {row.iteration_place}"
    when = f"{'in' if is_open else 'after'} {place}"
    return PageSection(heading="Stop summary", tables=[PageTable(rows=rows)], paragraphs=[
        f"The campaign is {view.state} {when}{reason}."])


def _table(heading: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> PageSection:
    return PageSection(heading=heading, tables=[PageTable(head=head, rows=rows)])


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
