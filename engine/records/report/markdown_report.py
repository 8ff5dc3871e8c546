"""A campaign's report as Markdown, made from the journal alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from engine.campaign import handover
from engine.history import campaign_view
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Campaign, Candidate, DecisionRow, VerdictRow
from engine.records import (
    class_history,
    final_report,
    measured,
    optimize_log,
    stop_summary,
    transfer_audit,
)
from harness.formats import quantities
from harness.formats.text import plain

MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")
HEADLINE = "headline"
"""The purpose of a verdict that measures the best commit against the baseline."""
TRIED = ("round", "slot", "candidate", "decision", "speedup", "hypothesis", "reason")
CLASSES = ("class", "outcome", "before", "after", "speedup", "% of roofline")
LIMITS = ("where", "limiter", "value", "advice")


def markdown(reader: Reader, row: Campaign) -> str:
    """Return the report: headline, what was kept and why, what was tried, classes, the stop."""
    view = campaign_view.read_with_manifest(reader, row)
    candidates = {candidate.id: candidate for candidate in reader.candidates(row.id)}
    decisions = list(reversed(reader.decisions(row.id)))
    verdicts = {verdict.id: verdict for verdict in reader.verdicts(row.id)}
    parts = [
        _headline(row, view.history),
        _facts(view),
        _kept(view.history, verdicts),
        _waiting([own for own in candidates.values() if own.state == "waiting"], verdicts),
        _tried(decisions, candidates, verdicts),
        _classes(view.history, verdicts),
        _history(view.history),
        _limits(reader.bottlenecks(row.id)),
        _end_to_end(view),
        transfer_audit.of(view.history).lines("## Real-training applicability audit"),
        final_report.next_steps(view, view.history, "## What to try next"),
        _tips(view),
        _stop(row, decisions),
    ]
    return "\n".join("\n".join(part) for part in parts).rstrip() + "\n"


def text(value: str, limit: int = 300) -> str:
    """Return a text from outside as one line that Markdown shows unchanged."""
    return MARKUP.sub(r"\\\1", " ".join(plain(value, limit).split()))


def without_gain(row: Campaign) -> str:
    """Return the headline of a campaign without a measured gain."""
    if row.best_commit == row.base_commit:
        return "No gain was kept: the kernel is as it was."
    return "What was kept is not accepted: its gain against the baseline is not measured."


def facts(view: JournalView) -> list[tuple[str, str]]:
    """Return what identifies a campaign, by name."""
    row = view.row
    return [
        ("campaign", row.id), ("state", f"{row.state}: {row.outcome}".rstrip(": ")),
        ("target", f"{row.op} in {row.lang or row.backend}"),
        ("device", f"{row.device} {row.gpu}".strip()), ("from commit", row.base_commit[:12]),
        ("to commit", row.best_commit[:12]),
        *(("rolled back", stop_summary.rollback_reason(rollback))
          for rollback in view.history.rollbacks),
        ("rounds", str(len(view.history.rounds))),
        ("candidates", str(len(view.history.candidates))),
        ("time", f"{view.stamp(row.created_at)} to {view.stamp(view.ended_at)}, "
                 f"{(view.ended_at - row.created_at) / 60:.0f} min")]


def _headline(row: Campaign, past: CampaignHistory) -> Iterator[str]:
    yield from (f"# {text(row.op)} on {text(row.device or row.gpu)}", "")
    if row.speedup is None or row.best_commit == row.base_commit:
        yield without_gain(row)
    else:
        alpha = measured.alpha(measured.of_headline(past))
        gain = quantities.speedup(row.speedup, row.speedup_low, row.speedup_high, alpha)
        yield f"**{gain}** as fast as where it began, measured best against baseline."
    yield ""


def _facts(view: JournalView) -> Iterator[str]:
    yield from table(("", ""), (
        (name, f"`{value}`" if name.endswith("commit") else text(value))
        for name, value in facts(view)))


def _kept(past: CampaignHistory, verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    yield from ("## What was kept, and why", "")
    kept = [decision for decision in past.decisions if decision.kind == "keep"]
    for keep in kept:
        candidate = past.candidates.get(keep.candidate)
        gain = measured.recorded_speedup(verdicts.get(keep.verdict or 0)) or "kept"
        undone = "rolled back at the final acceptance; " if keep.commit in past.undone else ""
        yield f"- round {keep.round}, `{keep.commit[:12]}`: **{gain}** " \
            f"({undone}{text(keep.reason)}; decided by {text(keep.actor)})"
        if candidate is not None and candidate.hypothesis:
            attack = f" It attacks {text(candidate.bottleneck)}." if candidate.bottleneck else ""
            yield f"  {text(candidate.hypothesis)}.{attack}".replace("..", ".")
    if not kept:
        yield "Nothing."
    yield ""


def _waiting(waiting: list[Candidate], verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    if not waiting:
        return
    yield from ("## What waits for you", "")
    for candidate in waiting:
        newest = next((row for row in verdicts.values() if row.candidate == candidate.id), None)
        yield f"- `{candidate.id[:12]}` {measured.recorded_speedup(newest)} " \
            f"{text(candidate.hypothesis)} ({text(candidate.reason)}): " \
            f"`kopt approve {candidate.id[:12]}`"
    yield ""


def _tried(decisions: list[DecisionRow], candidates: dict[str, Candidate],
           verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    counts = Counter(decision.kind for decision in decisions)
    yield from ("## What was tried", "", ", ".join(
        f"{count} {kind}" for kind, count in counts.most_common()) or "Nothing was judged.", "")
    rows = []
    for decision in decisions:
        candidate = candidates.get(decision.candidate)
        rows.append((str(decision.round), candidate.slot if candidate else "",
                     f"`{decision.candidate[:12]}`", decision.kind,
                     measured.recorded_speedup(verdicts.get(decision.verdict or 0)),
                     text(candidate.hypothesis, 120) if candidate else "",
                     text(decision.reason, 200)))
    if rows:
        yield from table(TRIED, rows)


def _classes(past: CampaignHistory, verdicts: dict[int, VerdictRow]) -> Iterator[str]:
    """Yield the classes of the newest headline verdict; without one, of the newest keep's."""
    undone = {commit[:12] for commit in past.undone}
    newest = next((row for row in verdicts.values() if row.purpose == HEADLINE
                   and row.candidate not in undone), None)
    kept = [verdicts[keep.verdict] for keep in past.decisions if keep.kind == "keep"
            and keep.verdict in verdicts and keep.commit not in past.undone]
    chosen = newest or (kept[-1] if kept else None)
    verdict = chosen.decode_or_none() if chosen is not None else None
    if verdict is None or not verdict.rows:
        return
    against = "the baseline" if newest else "what was best before it"
    sure = f"; intervals{quantities.alpha_level(verdict.alpha)}" if verdict.alpha else ""
    yield from ("## Config classes", "",
                f"The best commit against {against}; latencies in microseconds{sure}.", "")
    yield from table(CLASSES, ((
        text(row.config_class) + (" (core)" if row.core else ""), row.outcome,
        _number(measured.before(row)), _number(row.latency_us),
        quantities.speedup_of_log(row.log_ratio, row.low, row.high), _number(row.pct_of_roofline))
        for row in verdict.rows))


def _history(past: CampaignHistory) -> Iterator[str]:
    """Yield each class's baseline and its time after every kept round."""
    if rows := class_history.by_class(past):
        yield from ("## History by config class", "")
        yield from table(class_history.HEAD, (
            (str(row.round), f"`{row.commit[:12]}`"
             + (" (rolled back)" if row.commit in past.undone else ""),
             *map(text, class_history.cells(row))) for row in rows))


def _limits(bottlenecks: Sequence[Bottleneck]) -> Iterator[str]:
    if bottlenecks:
        yield from ("## What limits it now", "")
        yield from table(LIMITS, (
            (text(f"{own.kernel} {own.config_class}".strip()), text(own.limiter),
             "" if own.value is None else f"{text(own.metric)} {own.value:.4g}", text(own.advice))
            for own in bottlenecks))


def _end_to_end(view: JournalView) -> Iterator[str]:
    for row in view.end_to_end[-1:]:
        yield from (*optimize_log.end_to_end(view, row), "")
    if (record := view.program_not_run) is not None:
        yield from (*optimize_log.not_run(view, record), "")


def _tips(view: JournalView) -> Iterator[str]:
    for _, tips in view.tips[:1]:
        if tips.lessons:
            yield from (*optimize_log.tips_read(tips), "")


def _stop(row: Campaign, decisions: list[DecisionRow]) -> Iterator[str]:
    rounds = f" of {row.rounds_max}" if row.rounds_max else ""
    reason = f": {text(row.outcome)}." if row.outcome else "."
    yield from ("## Stop summary", "",
                f"The campaign is {row.state} after round {row.round}{rounds}{reason}")
    losses = Counter(decision.kind for decision in decisions
                     if decision.kind in ("tie", "regression", "reject"))
    if losses:
        counts = ", ".join(f"{count} {kind}" for kind, count in losses.most_common())
        yield f"What did not work: {counts}; the table above has each reason."
    if row.state in ("finished", "stopped", "failed", "waiting") \
            and row.best_commit != row.base_commit:
        yield f"`{handover.command(row)}` takes the result over."
    yield ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table; the cells are escaped already."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
