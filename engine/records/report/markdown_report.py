"""A campaign's report as Markdown, made from the journal alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from engine.campaign import handover
from engine.history import campaign_view
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, DecisionRow, VerdictRow
from engine.markdown import level
from engine.records import class_history as history_by_class
from engine.records import final_report, measured, optimize_log, stop_summary, transfer_audit
from harness.formats.text import plain

MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")
HEADLINE = "headline"
"""Purpose of the verdict that measures the best commit against the baseline."""


def markdown(reader: Reader, one: Campaign) -> str:
    """Return the report: headline, what was kept and why, what was tried, classes, the stop."""
    told = campaign_view.read_with_manifest(reader, one)
    candidates = {c.id: c for c in reader.candidates(one.id)}
    decisions = list(reversed(reader.decisions(one.id)))
    verdicts = {v.id: v for v in reader.verdicts(one.id)}
    waiting = [c for c in candidates.values() if c.state == "waiting"]
    parts = [
        _headline(one, told.history),
        _facts(told, candidates),
        _kept(told.history, verdicts),
        _waiting(waiting, verdicts),
        _tried(decisions, candidates, verdicts),
        _classes(told.history, verdicts),
        _history(told.history),
        _limits(reader, one),
        _end_to_end(told),
        transfer_audit.of(told.history).lines("## Real-training applicability audit"),
        final_report.steps(told, told.history, "## What to try next"),
        _learned(told),
        _stop(one, decisions),
    ]
    return "\n".join("\n".join(part) for part in parts).rstrip() + "\n"


def text(value: str, limit: int = 300) -> str:
    """Return a worker's text as one line that Markdown shows as it is."""
    return MARKUP.sub(r"\\\1", " ".join(plain(value, limit).split()))


def ratio(value: float | None, low: float | None = None, high: float | None = None,
          alpha: float | None = None) -> str:
    """Return a speedup with its interval, such as "2.31x [2.25, 2.37] at alpha 0.05"."""
    if value is None:
        return ""
    interval = f" [{low:.2f}, {high:.2f}]{level(alpha)}" \
        if low is not None and high is not None else ""
    return f"{value:.2f}x{interval}"


def without_gain(one: Campaign) -> str:
    """Return what is said of a campaign without a measured gain."""
    if one.best_commit == one.base_commit:
        return "No gain was kept: the kernel is as it was."
    return "What was kept is not accepted: its gain against the baseline is not measured."


def of_row(row: VerdictRow | None) -> str:
    """Return the speedup of a recorded verdict, "" where there is none."""
    return ratio(row.speedup, row.low, row.high, measured.alpha(row)) if row else ""


def _headline(one: Campaign, past: CampaignHistory) -> Iterator[str]:
    yield f"# {text(one.op)} on {text(one.device or one.gpu)}"
    yield ""
    if one.speedup is None or one.best_commit == one.base_commit:
        yield without_gain(one)
    else:
        alpha = measured.alpha(measured.of_headline(past))
        gain = ratio(one.speedup, one.speedup_low, one.speedup_high, alpha)
        yield (f"**{gain}** as fast as where it began, measured best against baseline.")
    yield ""


def _facts(told: JournalView, candidates: dict[str, Candidate]) -> Iterator[str]:
    one = told.row
    facts = [
        ("campaign", text(one.id)), ("state", text(f"{one.state}: {one.outcome}".rstrip(": "))),
        ("target", text(f"{one.op} in {one.lang or one.backend}")),
        ("device", text(f"{one.device} {one.gpu}".strip())),
        ("from commit", f"`{one.base_commit[:12]}`"), ("to commit", f"`{one.best_commit[:12]}`"),
        *(("rolled back", text(stop_summary.rolled_back(one))) for one in told.history.rollbacks),
        ("rounds", str(len(told.history.rounds))), ("candidates", str(len(candidates))),
        ("time", f"{told.stamp(one.created_at)} to {told.stamp(told.ended_at)}, "
                 f"{(told.ended_at - one.created_at) / 60:.0f} min"),
    ]
    yield from table(("", ""), facts)


def _kept(past: CampaignHistory, verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    yield "## What was kept, and why"
    yield ""
    kept, undone = [d for d in past.decisions if d.kind == "keep"], past.undone
    for decision in kept:
        candidate = past.candidates.get(decision.candidate)
        verdict = verdicts.get(decision.verdict or 0)
        gain = of_row(verdict)
        back = "rolled back at the final acceptance; " if decision.commit in undone else ""
        yield f"- round {decision.round}, `{decision.commit[:12]}`: **{gain or 'kept'}** " \
            f"({back}{text(decision.reason)}; decided by {text(decision.actor)})"
        if candidate is not None and candidate.hypothesis:
            attacked = f" It attacks {text(candidate.bottleneck)}." if candidate.bottleneck else ""
            yield f"  {text(candidate.hypothesis)}.{attacked}".replace("..", ".")
    if not kept:
        yield "Nothing."
    yield ""


def _waiting(waiting: list[Candidate], verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    if not waiting:
        return
    yield "## What waits for you"
    yield ""
    for one in waiting:
        newest = next((v for v in verdicts.values() if v.candidate == one.id), None)
        gain = of_row(newest)
        yield f"- `{one.id[:12]}` {gain} {text(one.hypothesis)} ({text(one.reason)}): " \
            f"`kopt approve {one.id[:12]}`"
    yield ""


def _tried(decisions: list[DecisionRow], candidates: dict[str, Candidate],
           verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    yield "## What was tried"
    yield ""
    counts = Counter(decision.kind for decision in decisions)
    yield (", ".join(f"{count} {kind}" for kind, count in counts.most_common())
           or "Nothing was judged.")
    yield ""
    rows = []
    for decision in decisions:
        candidate, verdict = candidates.get(decision.candidate), verdicts.get(decision.verdict or 0)
        rows.append((str(decision.round), candidate.slot if candidate else "",
                     f"`{decision.candidate[:12]}`", decision.kind,
                     of_row(verdict),
                     text(candidate.hypothesis, 120) if candidate else "",
                     text(decision.reason, 200)))
    if rows:
        yield from table(("round", "slot", "candidate", "decision", "speedup", "hypothesis",
                          "reason"), rows)


def _classes(past: CampaignHistory, verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    """Show the newest headline verdict, without one the newest keep's, class by class."""
    undone = {commit[:12] for commit in past.undone}
    newest = next((v for v in verdicts.values() if v.purpose == HEADLINE
                   and v.candidate not in undone), None)
    kept = [verdicts[d.verdict] for d in past.decisions if d.kind == "keep"
            and d.verdict in verdicts and d.commit not in past.undone]
    chosen = newest or (kept[-1] if kept else None)
    verdict = chosen.decode_or_none() if chosen else None
    if verdict is None or not verdict.rows:
        return
    yield "## Config classes"
    yield ""
    against = "the baseline" if newest else "what was best before it"
    sure = f"; intervals{level(verdict.alpha)}" if verdict.alpha is not None else ""
    yield f"The best commit against {against}; latencies in microseconds{sure}."
    yield ""
    rows = [(text(row.config_class) + (" (core)" if row.core else ""), row.outcome,
             _number(measured.before(row)), _number(row.latency_us),
             ratio(*(None if x is None else math.exp(x)
                     for x in (row.log_ratio, row.low, row.high))),
             _number(row.pct_of_roofline)) for row in verdict.rows]
    yield from table(("class", "outcome", "before", "after", "speedup", "% of roofline"), rows)


def _history(past: CampaignHistory) -> Iterator[str]:
    """Show each class's baseline, and what every kept round made of it."""
    marks = history_by_class.by_class(past)
    if not marks:
        return
    yield "## History by config class"
    yield ""
    yield from table(history_by_class.HEAD, (
        (str(one.round), f"`{one.commit[:12]}`"
         + (" (rolled back)" if one.commit in past.undone else ""),
         *map(text, history_by_class.cells(one))) for one in marks))


def _limits(reader: Reader, one: Campaign) -> Iterator[str]:
    found = reader.bottlenecks(one.id)
    if not found:
        return
    yield "## What limits it now"
    yield ""
    yield from table(("where", "limiter", "value", "advice"), (
        (text(f"{b.kernel} {b.config_class}".strip()), text(b.limiter),
         "" if b.value is None else f"{text(b.metric)} {b.value:.4g}", text(b.advice))
        for b in found))


def _end_to_end(told: JournalView) -> Iterator[str]:
    for row in told.end_to_end[-1:]:
        yield from (*optimize_log.end_to_end(told, row), "")
    if (why := told.program_not_run) is not None:
        yield from (*optimize_log.not_run(told, why), "")


def _learned(told: JournalView) -> Iterator[str]:
    for _, found in told.tips[:1]:
        if found.lessons:
            yield from (*optimize_log.tips_read(found), "")


def _stop(one: Campaign, decisions: list[DecisionRow]) -> Iterator[str]:
    yield "## Stop summary"
    yield ""
    ended = one.state in ("finished", "stopped", "failed", "waiting")
    yield (f"The campaign is {one.state} after round {one.round}"
           + (f" of {one.rounds_max}" if one.rounds_max else "")
           + (f": {text(one.reason)}." if one.reason else "."))
    directions = Counter(d.kind for d in decisions if d.kind in ("tie", "regression", "reject"))
    if directions:
        told = ", ".join(f"{count} {kind}" for kind, count in directions.most_common())
        yield f"What did not work: {told}; the table above has each reason."
    if ended and one.best_commit != one.base_commit:
        yield f"`{handover.command(one)}` takes the result over."
    yield ""


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table; cells must be harmless already."""
    yield f"| {' | '.join(headers)} |"
    yield f"|{' --- |' * len(headers)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
