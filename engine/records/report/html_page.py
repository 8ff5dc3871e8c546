"""The report as one HTML file that needs nothing else: no script, no network, charts inside."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.history import campaign_view
from engine.history.campaign_view import JournalView
from engine.journal.read import Reader
from engine.journal.records import Campaign, DecisionRow
from engine.markdown import gain, level, micros
from engine.records import class_history as history_by_class
from engine.records import (
    final_report,
    measured,
    optimize_log,
    performance,
    round_summary,
    stop_summary,
    transfer_audit,
)
from engine.records.report import charts
from engine.records.report.charts import Bar, Point
from engine.records.report.markdown_report import of_row, ratio, without_gain
from engine.records.report.markup import Child, Markup, table, tag, together
from engine.records.report.style import STYLE
from engine.records.transfer_audit import Audit

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may load: nothing. It holds whatever might yet slip in."""
KEPT = ("round", "commit", "gain", "call time", "GPU time", "why", "decided by")
CLASSES = ("class", "baseline", "best", "gain", "% of roofline")
TRIED = ("round", "slot", "candidate", "decision", "speedup", "hypothesis", "reason")
LIMITS = ("where", "limiter", "value", "advice")
AUDIT = ("round", "commit", "bucket", "cache keys", "benchmark gain", "estimated real gain",
         "derivation", "decision")


def html(reader: Reader, one: Campaign) -> str:
    """Return the report as one HTML document."""
    told = campaign_view.read_with_manifest(reader, one)
    title = f"{one.op} on {one.device or one.gpu}"
    parts = [
        _headline(one, told),
        _facts(told),
        _progress(told),
        _kept(told),
        _classes(told),
        _history(told),
        _end_to_end(told),
        _not_run(told),
        _audit(transfer_audit.of(told.history)),
        _limits(told),
        _next(told),
        _tried(told),
        _learned(told),
        _stops(told),
    ]
    head = tag("head", tag("meta", charset="utf-8"),
               tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
               tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
               tag("title", title), tag("style", STYLE))
    body = tag("body", tag("main", tag("h1", title), *(together(part) for part in parts)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _headline(one: Campaign, told: JournalView) -> Iterator[Markup]:
    if one.speedup is None or one.best_commit == one.base_commit:
        yield tag("p", without_gain(one), class_="headline")
        return
    yield tag("p", tag("strong", ratio(one.speedup)), " as fast as where it began ",
              tag("span", ratio(one.speedup, one.speedup_low, one.speedup_high, measured.alpha(
                  measured.of_headline(told.history))), class_="note"),
              ", measured best against baseline.", class_="headline")


def _facts(told: JournalView) -> Iterator[Markup]:
    row = told.row
    minutes = (told.ended_at - row.created_at) / 60
    yield table(("", ""), [
        ("campaign", row.id), ("state", f"{row.state}: {row.outcome}".rstrip(": ")),
        ("target", f"{row.op} in {row.lang or row.backend}"),
        ("device", f"{row.device} {row.gpu}".strip()), ("from commit", row.base_commit[:12]),
        ("to commit", row.best_commit[:12]),
        *(("rolled back", stop_summary.rolled_back(one)) for one in told.history.rollbacks),
        ("rounds", str(len(told.history.rounds))),
        ("candidates", str(len(told.history.candidates))),
        ("time", f"{told.stamp(row.created_at)} to {told.stamp(told.ended_at)}, "
                 f"{minutes:.0f} min")])


def _progress(told: JournalView) -> Iterator[Markup]:
    points: list[Point] = []
    for round in told.history.rounds:
        if round.ended_at is None:
            continue
        found = round_summary.shown(told, round)
        tried = found[1].speedup if found and found[0] is not None else None
        own = "" if tried is None else f", its best try {tried:.2f}x against the best before it"
        points.append(Point(
            round=round.n, outcome=round.outcome or "", tried=tried,
            best=round.best_speedup or (points[-1].best if points else 1.0),
            title=f"round {round.n}: {round.outcome}{own}"))
    if drawn := charts.progress(points):
        signs = ", ".join(f"{sign} {word}" for word, sign in charts.SIGNS.items()
                          if word != "baseline")
        yield from (tag("h2", "Progress"), drawn,
                    tag("p", f"The line is the best; a sign is what its round tried: {signs}.",
                        class_="note"))


def _kept(told: JournalView) -> Iterator[Markup]:
    yield tag("h2", "What was kept, and why")
    rows = [_keep(told, keep) for keep in told.history.keeps]
    yield table(KEPT, rows) if rows else tag("p", "Nothing.")


def _keep(told: JournalView, keep: DecisionRow) -> tuple[Child, ...]:
    verdict = told.history.verdicts[keep.verdict].decode() \
        if keep.verdict in told.history.verdicts else None
    times = ("", "") if verdict is None else measured.latencies(verdict, told.history.score)
    gained = of_row(told.history.verdicts.get(keep.verdict or 0))
    return (str(keep.round), tag("code", keep.commit[:12]), gained, *times,
            ("rolled back: " if keep.commit in told.history.undone else "")
            + performance.why(told, keep), keep.actor)


def _classes(told: JournalView) -> Iterator[Markup]:
    verdict = measured.of_best(told.history)
    if verdict is None or not verdict.rows or told.history.best == told.history.base:
        return
    bars = [Bar(name=row.config_class, value=math.exp(row.log_ratio), low=_exp(row.low),
                high=_exp(row.high)) for row in verdict.rows if row.log_ratio is not None]
    yield from (tag("h2", "Config classes"),
                charts.classes(bars, "Speedup of the best against the baseline, by config class"
                               + (f", intervals{level(verdict.alpha)}"
                                  if verdict.alpha is not None else "")),
                table(CLASSES, [(row.config_class + (" (core)" if row.core else ""),
                                 micros(measured.before(row)), micros(row.latency_us),
                                 gain(row.log_ratio), measured.reach(row))
                                for row in verdict.rows]))


def _history(told: JournalView) -> Iterator[Markup]:
    if marks := history_by_class.by_class(told.history):
        yield tag("h2", "History by config class")
        yield table(history_by_class.HEAD, [(
            str(one.round), tag("code", one.commit[:12])
            if one.commit not in told.history.undone else f"{one.commit[:12]} (rolled back)",
            *history_by_class.cells(one)) for one in marks])


def _end_to_end(told: JournalView) -> Iterator[Markup]:
    for found in told.end_to_end[-1:]:
        verdict = found.decode()
        yield from (tag("h2", "End to end"), table(("", ""), [
            ("commit", found.candidate), ("command", told.commands.end_to_end),
            ("result", optimize_log.ended(verdict)), *(("note", note) for note in verdict.notes)]),
            table(CLASSES, [(row.config_class, micros(measured.before(row)),
                             micros(row.latency_us), gain(row.log_ratio), "")
                            for row in verdict.rows]))


def _not_run(told: JournalView) -> Iterator[Markup]:
    if (found := told.program_not_run) is not None:
        yield from (tag("h2", "End to end"), table(("", ""), [
            ("commit", found.commit), ("command", told.commands.end_to_end),
            ("result", found.message)]))


def _audit(found: Audit) -> Iterator[Markup]:
    yield tag("h2", "Real-training applicability audit")
    if not found.kept:
        yield tag("p", "Nothing was kept: there is nothing to audit.")
        return
    sums = [("S_real, kernels", found.s_real), ("W_real, caches of weights", found.w_real),
            ("believed in real training", found.believed)] if found.attributed else []
    if found.headline is not None:
        sums.append(("headline, as measured", found.headline))
    yield charts.classes([Bar(name=name, value=math.exp(value)) for name, value in sums],
                         "What of the headline carries over to real training or serving")
    yield table(AUDIT, [(
        str(one.round), tag("code", one.commit[:12]), one.check.bucket,
        "; ".join(one.check.audit.cache_keys) if one.check.audit else "",
        gain(one.check.measured), gain(one.check.real), one.check.derivation, one.check.decision)
        for one in found.kept])
    yield table(("", ""), [
        *((name, gain(value)) for name, value in sums), ("R_real, over-fitted", gain(0.0)),
        ("inflation gap", found.verdict())])
    yield from (tag("p", told, class_="warning") for told in found.advice())


def _limits(told: JournalView) -> Iterator[Markup]:
    newest = [found for _, found in sorted(told.bottlenecks.items()) if found][-1:]
    for found in newest:
        yield from (
            tag("h2", "What limits it now"),
            table(
                LIMITS,
                [
                    (
                        f"{b.kernel} {b.config_class}".strip(),
                        b.limiter,
                        round_summary.value(b.metric, b.value),
                        b.advice,
                    )
                    for b in found
                ],
            ),
        )


def _next(told: JournalView) -> Iterator[Markup]:
    ideas = final_report.ideas(told, told.history)
    if ideas:
        yield from (tag("h2", "What to try next"), tag("ol", *(tag("li", idea) for idea in ideas)))


def _tried(told: JournalView) -> Iterator[Markup]:
    rows: list[tuple[Child, ...]] = []
    for decision in told.history.decisions:
        candidate = told.history.candidates.get(decision.candidate)
        verdict = told.history.verdicts.get(decision.verdict or 0)
        rows.append((str(decision.round), candidate.slot if candidate else "",
                     tag("code", decision.candidate[:12]), decision.kind,
                     of_row(verdict),
                     candidate.hypothesis if candidate else "", decision.reason))
    yield from (tag("h2", "What was tried"), tag("details", tag(
        "summary", f"{len(rows)} decisions"), table(TRIED, rows)))


def _learned(told: JournalView) -> Iterator[Markup]:
    for _, found in told.tips[:1]:
        if found.lessons:
            yield from (tag("h2", "Tips read before the baseline"), tag("p", found.path),
                        tag("ul", *(tag("li", lesson) for lesson in found.lessons)))


def _stops(told: JournalView) -> Iterator[Markup]:
    for at, stop in told.stops[-1:]:
        yield from (tag("h2", "Stop summary"), table(("", ""), [
            ("stopped", told.stamp(at)), ("because", stop.outcome),
            ("best commit", told.history.until(at).best),
            ("best", measured.metrics(told.history.until(at))),
            ("spent", f"{stop.wall_s:.0f} s, {stop.trials} trials"),
            ("waiting for a person", str(stop.waiting))]))


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)
