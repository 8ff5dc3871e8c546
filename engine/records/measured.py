"""How verdicts are told in the files for people: latencies, kernels, tables of config classes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory, Change
from engine.journal.records import DecisionRow, Round, VerdictRow
from engine.judge.judge import describe_speedup
from engine.markdown import gain, level, micros, table
from harness.timing.plan import Score
from harness.verdict import Row, Verdict

CLASSES = ("class", "result", "best", "candidate", "change", "% of roofline", "note")
_PROFILED = re.compile(r": candidate (\S.*?) \d[\d.]* us")
AT_FIRST = ("class", "correct", "latency", "% of roofline", "note")
GAINS = ("class", "before", "best", "gain", "% of roofline")


def is_kernel_time(verdict: Verdict, score: Score) -> bool:
    """Whether a verdict's latency is GPU kernel time; otherwise it is that of whole calls."""
    return verdict.latency_kind == "measured-gpu" and score == "kernel"


def latencies(verdict: Verdict, score: Score) -> tuple[str, str]:
    """Return the time of calls and the GPU kernel time; what was not the scored time is empty."""
    told = micros(verdict.latency_us)
    return ("", told) if is_kernel_time(verdict, score) else (told, "")


def change(verdict: Verdict) -> str:
    """Return how a candidate's time differs from the best's before it: `-6.2% time; ...`."""
    if verdict.speedup is None:
        return "not measured"
    return f"{1 / verdict.speedup - 1:+.1%} time; {speedup(verdict)}"


def speedup(verdict: Verdict) -> str:
    """Return a speedup with its interval and what that holds at."""
    sure = verdict.speedup_low is not None and verdict.speedup_high is not None
    return describe_speedup(verdict) + (level(verdict.alpha) if sure else "")


def alpha(row: VerdictRow | None) -> float | None:
    """Return the error rate that a verdict's interval holds at."""
    return None if row is None else row.decode().alpha


def of_headline(past: CampaignHistory) -> VerdictRow | None:
    """Return the newest verdict on the best against the baseline."""
    return next((row for row in reversed(past.verdicts.values()) if row.purpose == "headline"
                 and row.candidate == past.best[:12]), None)


def before(row: Row) -> float | None:
    """Return the time of the best beside a candidate's, so that the two have the measured ratio.

    That is a mean over pairs of runs; what was measured of each side alone is a median, and two of
    these may say the opposite.
    """
    if row.latency_us is None or row.log_ratio is None:
        return row.incumbent_us
    return row.latency_us * math.exp(row.log_ratio)


def kernel(story: JournalView, n: int, verdict: Verdict) -> str:
    """Return the kernel that a verdict of a round is about: the profiler's, or the hottest known.
    """
    seen = [found[1] for e in verdict.evidence
            if e.kind == "kernels" and (found := _PROFILED.search(e.detail))]
    nearest = sorted(story.bottlenecks, key=lambda number: (number > n, abs(number - n)))
    named = [b.kernel for number in nearest for b in story.bottlenecks[number] if b.kernel]
    return (seen or named or [story.row.op])[0]


def classes(verdict: Verdict) -> str:
    """Return the table of a verdict's config classes; times are those of the pair, side by side."""
    return table(CLASSES, (_class(row) for row in verdict.rows))


def classes_of_baseline(verdict: Verdict) -> str:
    """Return the table of the config classes as they were before anything was changed."""
    return table(AT_FIRST, ((
        row.config_class + (" (core)" if row.core else ""), "yes" if row.correct else "no",
        micros(row.latency_us), reach(row), row.note) for row in verdict.rows))


def _class(row: Row) -> tuple[str, ...]:
    return (row.config_class + (" (core)" if row.core else ""),
            row.outcome if row.correct else "wrong", micros(before(row)),
            micros(row.latency_us), "" if row.log_ratio is None else gain(row.log_ratio),
            reach(row), row.note)


def reach(row: Row) -> str:
    return "" if row.pct_of_roofline is None else f"{row.pct_of_roofline:.0f}%"


def of_best(past: CampaignHistory) -> Verdict | None:
    """Return what is known of the best: its verdict against the baseline, or the baseline's own."""
    newest: VerdictRow | None = None
    for row in past.verdicts.values():
        if row.correct and (row.purpose == "baseline" or (
                row.purpose == "headline" and row.candidate == past.best[:12])):
            newest = row
    return None if newest is None else newest.decode()


def baseline(past: CampaignHistory) -> VerdictRow | None:
    return next((row for row in past.verdicts.values() if row.purpose == "baseline"), None)


def of_classes(past: CampaignHistory) -> str:
    """Return baseline against best, class by class, as measured beside each other; "" if never."""
    verdict = of_best(past)
    if verdict is None or not verdict.rows or past.best == past.base:
        return ""
    return table(GAINS, ((row.config_class, micros(before(row) or row.latency_us),
                          micros(row.latency_us), gain(row.log_ratio), reach(row))
                         for row in verdict.rows))


def metrics(past: CampaignHistory) -> str:
    """Return the best's numbers in one line."""
    verdict = of_best(past)
    if verdict is None:
        return "not measured"
    latency = "not timed" if verdict.latency_us is None else \
        f"{verdict.latency_us:.3f} us ({verdict.latency_kind})"
    if not any(row.purpose == "headline" and row.candidate == past.best[:12]
               for row in past.verdicts.values()):
        kept = "nothing was kept" if past.best == past.base else "the best was not measured"
        return f"1.00x: {kept}; baseline {latency}"
    rows = ", ".join(f"{row.config_class} {row.latency_us:.3f} us" for row in verdict.rows
                     if row.latency_us is not None)
    return f"{speedup(verdict)} against the baseline; {latency}; {rows}"


def of_round(past: CampaignHistory, round: Round) -> list[tuple[DecisionRow, Verdict]]:
    """Return what was decided in a round on candidates that have a verdict, in its order."""
    return [(d, past.verdicts[d.verdict].decode()) for d in past.decisions
            if d.round == round.n and d.verdict in past.verdicts and within(d, round)]


def within(decision: DecisionRow, round: Round) -> bool:
    """Whether something was decided before a round was over; later it is an approval."""
    return decision.at <= (round.ended_at or math.inf)


def told(pair: Change | None) -> str:
    return "not scored" if pair is None else f"{pair[0]:.3f} -> {pair[1]:.3f} us"


def numbered(items: Sequence[str]) -> Iterator[str]:
    return (f"{number}. {item}" for number, item in enumerate(items, 1))
