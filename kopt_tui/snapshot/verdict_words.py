"""A verdict in words: the outcome, what was measured, and each config class as table cells.

The command line and the dashboard both present verdicts with these words.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from harness.formats import quantities
from harness.timing.outcome import describe_row, row_interval, row_word
from harness.verdict import FLOOR, INCUMBENT_FLOOR, Row, Verdict
from kopt_tui.snapshot import phrases

MOST_NAMED = 4
Outcome = Literal["invalid", "not judged here", "incorrect", "rejected", "correct"]


class JudgedVerdict(msgspec.Struct, frozen=True):
    """A recorded verdict; `verdict` is None where this version of kopt cannot read it."""

    id: int
    purpose: str
    at: float
    incumbent_tree: str
    verdict: Verdict | None


class VerdictWords(msgspec.Struct, frozen=True):
    """The outcome of a verdict, and the reason for it or else what was measured."""

    outcome: Outcome
    reason: str = ""
    measured: str = ""

    @property
    def summary_line(self) -> str:
        """Return one line: `✓ correct, 1.52x [1.49, 1.55] against the incumbent, ...`."""
        if self.outcome == "correct":
            return f"✓ correct, {self.measured}"
        if self.outcome == "rejected":
            is_withheld = self.reason.startswith("latency withheld")
            return f"✗ correct, but {'' if is_withheld else 'rejected: '}{self.reason}"
        sign = "·" if self.outcome == "not judged here" else "✗"
        return f"{sign} {self.outcome}" + (f": {self.reason}" if self.reason else "")


def describe(verdict: Verdict) -> VerdictWords:
    """Return the outcome of a verdict in words."""
    reason = verdict.rejected_reason or ""
    if not verdict.valid:
        return VerdictWords("invalid", reason)
    if verdict.not_judged:
        return VerdictWords("not judged here", verdict.not_judged)
    if not verdict.correct:
        wrong = next((f"class {row.config_class}: {row.note}" for row in verdict.rows
                      if not row.correct and row.note), "")
        return VerdictWords("incorrect", reason or wrong)
    if rejects := [finding for finding in verdict.audit if finding.severity == "reject"]:
        floors = [f"{quantities.latency(row.floor_us)} (class {row.config_class})"
                  for row in verdict.rows if row.floor_us is not None and row.latency_us is None]
        is_withheld = floors and all(finding.rule == FLOOR for finding in rejects)
        return VerdictWords("rejected", "latency withheld: below the physical floor of "
                            + ", ".join(floors) if is_withheld else rejects[0].detail)
    return VerdictWords("correct", "", _measured(verdict))


def latency(verdict: Verdict) -> str:
    """Return the latency and how it was obtained: `10.0 us (measured-cpu)`."""
    return "" if verdict.latency_us is None else \
        f"{quantities.latency(verdict.latency_us)} ({verdict.time_kind})"


def speedup(verdict: Verdict) -> str:
    """Return the speedup over the incumbent with its interval."""
    return quantities.speedup(verdict.speedup, verdict.speedup_low, verdict.speedup_high)


def errors(verdict: Verdict) -> str:
    """Return the largest error, or what judged the results."""
    parts = []
    if verdict.max_rel_err is not None:
        parts.append(f"relative error {verdict.max_rel_err:.2g}")
    if verdict.error_budget_used is not None:
        parts.append(f"{quantities.percent(verdict.error_budget_used)} of the error budget")
    is_by_benchmark = verdict.latency_kind == "reported" or verdict.by_kernel_time
    return ", ".join(parts) or (
        "by the benchmark's own check" if is_by_benchmark else "against the float64 reference")


def class_cells(row: Row) -> dict[str, str]:
    """Return a config class as cells by column, and the tone of its outcome; some are empty."""
    outcome = row_word(row)
    return {
        "class": row.config_class,
        "outcome": "not timed" if outcome == "unmeasured" else phrases.signed(outcome),
        "speedup": quantities.speedup_of_log(row.log_ratio, *row_interval(row)),
        "change": "" if row.log_ratio is None else describe_row(row),
        "latency": quantities.latency(row.latency_us, row.latency_per),
        "incumbent": quantities.latency(row.incumbent_us, row.latency_per),
        "other": quantities.latency(row.other_us),
        "roofline": "" if row.pct_of_roofline is None else
        quantities.percent(row.pct_of_roofline / 100),
        "error budget": _budget(row.error_budget_used),
        "pairs": str(row.pairs or ""),
        "note": row.note,
        "tone": phrases.tone(outcome),
    }


def baseline_cells(row: Row) -> dict[str, str]:
    """Return a config class of the baseline, timed against itself: any difference is noise."""
    low, high = (None if bound is None else math.exp(bound) for bound in row_interval(row))
    return class_cells(row) | {"outcome": "· same code", "speedup": phrases.noise(low, high),
                               "change": "", "tone": "dim"}


def _budget(used: float | None) -> str:
    """Return the used share of the error budget: `12%`, `49,148x`, `3e+36x`."""
    return quantities.percent(used) if used is None or used < 10 \
        else f"{used:,.0f}x" if used < 1e9 else f"{used:.0e}x"


def _measured(verdict: Verdict) -> str:
    if verdict.latency_kind == "predicted":
        return f"not measured; {quantities.latency(verdict.latency_us)} predicted"
    if verdict.speedup is None:
        reason = next((finding.detail for finding in verdict.audit
                       if finding.rule == INCUMBENT_FLOOR), "")
        return f"not compared: {reason}" if reason else "not measured"
    device = f" on {verdict.device}" if verdict.device else ""
    slower = [row.config_class for row in verdict.rows if row.outcome == "slower"]
    where = f" in {quantities.listed(slower, MOST_NAMED)}" if len(verdict.rows) > 1 else ""
    lost = f"; slower{where}" if slower else ""
    return f"{speedup(verdict)} against the incumbent, {latency(verdict)}{device}{lost}"
