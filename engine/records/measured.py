"""Verdicts in the files for people: latencies, kernels, tables of config classes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.history.campaign_view import JournalView
from engine.history.history import RECENT, CampaignHistory
from engine.history.regression import Change, Regression, is_by_kernel_time, other_times
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.records import Round
from engine.judge.attribution import before
from engine.judge.judge import lacks_profiler
from engine.markdown import table
from engine.verify import reference_lines
from harness.formats import quantities
from harness.timing.outcome import row_interval, row_word
from harness.timing.plan import Score
from harness.verdict import Row, Verdict

CLASSES = ("class", "result", "best", "candidate", "change", "% of roofline", "note")
BASELINE = ("class", "correct", "latency", "% of roofline", "note")
REFERENCES = ("class", "best", "against eager PyTorch", "against compilers and libraries")
GAINS = ("class", "best", "gain", "% of roofline")
REGRESSIONS = ("attempt", "date", "BEST_COMMIT", "candidate", "hypothesis", "changed files",
               "call time best -> candidate", "GPU time best -> candidate", "delta", "notes")
BASELINE_WORDS, EARLIER_WORDS = "the baseline", "the best before it"
_PROFILED = re.compile(r": candidate (\S.*?) \d[\d.]* us")


def latencies(verdict: Verdict, score: Score) -> tuple[str, str]:
    """Return the call time and the GPU kernel time; one that was not measured is empty."""
    scored, others = quantities.latency_us(verdict.latency_us), other_times(verdict.rows)
    other = quantities.latency_us(others[1]) if others else \
        "not available" if lacks_profiler(verdict) else ""
    return (other, scored) if is_by_kernel_time(verdict, score) else (scored, other)


def change(verdict: Verdict) -> str:
    """Return how a candidate's time differs from the last best's: `-6.2% time; 1.07x [...]`."""
    text = speedup(verdict)
    if verdict.speedup is None or quantities.is_uncertain(
            verdict.speedup, verdict.speedup_low, verdict.speedup_high):
        return text
    return f"{1 / verdict.speedup - 1:+.1%} time; {text}"


def speedup(verdict: Verdict) -> str:
    """Return a speedup with its interval and error rate: `1.07x [1.05, 1.09] at alpha 0.05`."""
    return quantities.speedup(verdict.speedup, verdict.speedup_low, verdict.speedup_high,
                              verdict.alpha) or "not measured"


def recorded_speedup(row: VerdictRow | None, usual: float | None = None) -> str:
    """Return the speedup of a verdict in the journal, "" without a verdict.

    The text states the verdict's error rate unless that is the `usual` one.
    """
    error_rate = alpha(row)
    return "" if row is None else quantities.speedup(
        row.speedup, row.low, row.high, None if error_rate == usual else error_rate)


def alpha(row: VerdictRow | None) -> float | None:
    """Return the error rate of a verdict's interval."""
    return None if row is None else verdict_of(row).alpha


def of_headline(past: CampaignHistory) -> VerdictRow | None:
    """Return the newest verdict on the best against the baseline."""
    return next((row for row in reversed(past.verdicts.values()) if row.purpose == "headline"
                 and row.candidate == past.best[:12]), None)


def call_times(past: CampaignHistory) -> str:
    """Return the time of a whole call before and after, "" unless that gained much less.

    Calls from Python are launched one by one: the host may need longer than the kernels do.
    """
    row = of_headline(past)
    verdict = None if row is None else verdict_of(row)
    others = None if verdict is None else other_times(verdict.rows)
    if verdict is None or others is None or not verdict.speedup or \
            verdict.latency_kind != "measured-gpu" or not is_by_kernel_time(verdict, past.score):
        return ""
    before_us, after_us = others
    if math.log(before_us / after_us) >= math.log(verdict.speedup) / 2:
        return ""
    return f"the gain is GPU time; a call from Python takes {quantities.latency(after_us)}, " \
           f"before {quantities.latency(before_us)}: launches take longer than the kernels"


def kernel(view: JournalView, n: int, verdict: Verdict) -> str:
    """Return the kernel that a verdict of round `n` is about: as profiled, else as surveyed."""
    profiled = [match[1] for evidence in verdict.evidence
                if evidence.kind == "kernels" and (match := _PROFILED.search(evidence.detail))]
    surveys = view.history.surveys
    nearest = sorted(surveys, key=lambda number: (number > n, abs(number - n)))
    hottest = [bottleneck.kernel for number in nearest
               for bottleneck in surveys[number] if bottleneck.kernel]
    return (profiled or hottest or [view.row.op])[0]


def classes(verdict: Verdict) -> str:
    """Return the table of a verdict's config classes, best and candidate side by side."""
    return _with_other_times(CLASSES, verdict, ((
        class_name(row), row_word(row), quantities.latency_us(before(row), row.latency_per),
        quantities.latency_us(row.latency_us, row.latency_per),
        "" if row.log_ratio is None else gain(row), roofline_share(row), row.note)
        for row in verdict.rows))


def classes_of_baseline(verdict: Verdict) -> str:
    """Return the table of the config classes before any change."""
    return _with_other_times(BASELINE, verdict, ((
        class_name(row), "yes" if row.correct else "no",
        quantities.latency_us(row.latency_us, row.latency_per),
        roofline_share(row), row.note) for row in verdict.rows))


def classes_of_best(past: CampaignHistory) -> str:
    """Return the table of the best by class, against the baseline or, until that is measured,
    against the best before it; "" if nothing was kept.
    """
    best = best_verdict(past)
    if best is None or not best.verdict.rows or past.best == past.base:
        return ""
    return _gains(best.verdict, (GAINS[0], best.against, *GAINS[1:]))


def classes_of_provisional(past: CampaignHistory) -> str:
    """Return the table of the provisional best by class against the baseline, "" without one."""
    row = past.provisional_verdict
    return "" if row is None else _gains(
        verdict_of(row), (GAINS[0], BASELINE_WORDS, "provisional best", *GAINS[2:]))


def _gains(verdict: Verdict, head: Sequence[str]) -> str:
    return _with_other_times(head, verdict, ((
        row.config_class, quantities.latency_us(before(row) or row.latency_us, row.latency_per),
        quantities.latency_us(row.latency_us, row.latency_per), gain(row), roofline_share(row))
        for row in verdict.rows))


def reference_rows(past: CampaignHistory) -> list[tuple[str, ...]]:
    """Return how the best compares with eager PyTorch, torch.compile and libraries, by class."""
    known, best = reference_lines.of_campaign(past.verdicts.values()), best_verdict(past)
    return [] if known is None or best is None else [
        (name, quantities.latency(latency_us), *comparisons)
        for name, latency_us, *comparisons in known.compare(best.verdict.rows)]


def standing(past: CampaignHistory) -> str:
    """Return in words whether the best reaches compilers and libraries; "" if none was measured."""
    known, best = reference_lines.of_campaign(past.verdicts.values()), best_verdict(past)
    return "" if known is None or best is None else known.standing(best.verdict.rows)


def reference_notes(view: JournalView) -> list[str]:
    """Return notes: which compilers and libraries are the bar, how the best stands, what failed."""
    known = reference_lines.of_campaign(view.history.verdicts.values())
    return [] if known is None else [
        f"The bar, for comparison only: {', '.join(known.bars) or 'no compiler or library'}; "
        f"{known.measured(view.utc_offset_s)}.",
        *([f"The best is {position}."] if (position := standing(view.history)) else []),
        *([f"{known.failure}."] if known.failure else [])]


def _with_other_times(head: Sequence[str], verdict: Verdict,
                      lines: Iterable[Sequence[str]]) -> str:
    """Return a table of classes; a benchmark's verdict adds a column with the time not scored."""
    if verdict.latency_kind != "reported" or not any(row.other_us for row in verdict.rows):
        return table(head, lines)
    name = "call time" if verdict.by_kernel_time else "GPU time"
    others = (times((row.incumbent_other_us, row.other_us))
              if row.incumbent_other_us and row.other_us else "" for row in verdict.rows)
    return table((*head, f"{name}, before -> after"), (
        (*cells, other) for cells, other in zip(lines, others, strict=True)))


def recent_regressions(past: CampaignHistory) -> tuple[Regression, ...]:
    """Return the regressions in a row that the campaign ends with, else the last few."""
    return past.recent() or past.slower[-RECENT:]


def regressions(view: JournalView, rows: Sequence[Regression]) -> str:
    """Return the table of regressions."""
    return table(REGRESSIONS, [(
        f"round {row.round}", view.stamp(row.at), row.baseline[:8], row.candidate[:8],
        f"{row.hypothesis} (against {row.bottleneck})" if row.bottleneck else row.hypothesis,
        ", ".join(row.files), times(row.wall_us), times(row.kernel_us), f"{row.change:+.1%}",
        "; ".join(row.points)) for row in rows])


def gain(row: Row) -> str:
    """Return a class's speedup and its size in words, `uncertain` if it may be none."""
    return quantities.gain(row.log_ratio, *row_interval(row))


def class_name(row: Row) -> str:
    return row.config_class + (" (core)" if row.core else "")


def roofline_share(row: Row) -> str:
    return "" if row.pct_of_roofline is None else f"{row.pct_of_roofline:.0f}%"


class BestVerdict(NamedTuple):
    """The newest correct verdict on the best, and what it is measured against."""

    verdict: Verdict
    against: str


def best_verdict(past: CampaignHistory) -> BestVerdict | None:
    """Return the verdict on the best against the baseline, else the one that it was kept for.

    If nothing was kept, return the baseline's verdict; None if there is none.
    """
    headline = of_headline(past)
    if headline is not None and headline.correct:
        return BestVerdict(verdict_of(headline), BASELINE_WORDS)
    if past.best != past.base:
        keep = next((keep for keep in reversed(past.standing) if keep.verdict in past.verdicts),
                    None)
        return None if keep is None else BestVerdict(
            verdict_of(past.verdicts[keep.verdict or 0]), EARLIER_WORDS)
    baselines = [row for row in past.verdicts.values() if row.purpose == "baseline" and row.correct]
    return BestVerdict(verdict_of(baselines[-1]), BASELINE_WORDS) if baselines else None


def metrics(past: CampaignHistory) -> str:
    """Return the numbers of the best in one line."""
    best = best_verdict(past)
    if best is None:
        return "not measured"
    verdict = best.verdict
    latency = "not timed" if verdict.latency_us is None else \
        f"{quantities.latency_us(verdict.latency_us)} ({verdict.time_kind})"
    if past.best == past.base:
        return f"1.00x: nothing was kept; baseline {latency}"
    rows = ", ".join(f"{row.config_class} {quantities.latency_us(row.latency_us, row.latency_per)}"
                     for row in verdict.rows if row.latency_us is not None)
    note = "" if best.against == BASELINE_WORDS else ", not measured against the baseline yet"
    return f"{speedup(verdict)} against {best.against}{note}; {latency}; {rows}"


def of_round(past: CampaignHistory, round: Round, *,
             later: bool = False) -> list[tuple[DecisionRow, Verdict]]:
    """Return a round's decisions on candidates that have a verdict, in order; if `later`, also
    those that were made after the round.
    """
    return [(decision, verdict_of(row)) for decision, row in past.verdicts_of(round.n)
            if later or is_within(decision, round)]


def is_within(decision: DecisionRow, round: Round) -> bool:
    """Return whether a decision was made before its round ended."""
    return decision.at <= (round.ended_at or math.inf)


def times(pair: Change | None) -> str:
    return "not scored" if pair is None else f"{pair[0]:.3f} -> {pair[1]:.3f} us"


def waiting(past: CampaignHistory) -> list[tuple[str, ...]]:
    """Return a row for each gain of the waiting line, each below what it rests on."""
    return [(member.id[:12], str(member.round), member.slot, member.state,
             recorded_speedup(past.placed(member.id)), member.hypothesis, member.reason)
            for member in past.line]


def incumbent(past: CampaignHistory, round: Round) -> str:
    """Return a round's incumbent, and whether it is or was provisional."""
    commit = round.incumbent
    if commit in {past.base, *(keep.commit for keep in past.keeps)}:
        return commit
    waits = commit in {member.commit for member in past.line}
    return f"{commit} (provisional: " + (
        "it waits for approval, or builds on a gain that does)" if waits else "it was not kept)")
