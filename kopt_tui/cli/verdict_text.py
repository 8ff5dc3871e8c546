"""A recorded verdict as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.journal.records import VerdictRow
from harness.verdict import Row
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import Speedup


def said(row: VerdictRow) -> str:
    """Return what a verdict says, in one line."""
    verdict = row.decode_or_none()
    if verdict is None:
        return "its record cannot be read by this version"
    if not verdict.valid:
        return phrases.clean(f"✗ invalid: {verdict.rejected_reason}")
    if not verdict.correct:
        return phrases.clean(f"✗ incorrect, {'; '.join(verdict.notes)}".rstrip(", "))
    flags = [finding.detail for finding in verdict.audit if finding.severity != "note"]
    if verdict.speedup is None:
        rejected = any(finding.severity == "reject" for finding in verdict.audit)
        return phrases.clean("; ".join([
            "✗ correct, but rejected" if rejected else "✓ correct, not measured", *flags]))
    told = phrases.speedup(Speedup(verdict.speedup, verdict.speedup_low, verdict.speedup_high))
    return phrases.clean("; ".join([f"✓ correct, {told}, {phrases.micros(verdict.latency_us)} "
                                  f"({verdict.latency_kind})", *flags]))


def class_rows(row: VerdictRow) -> Iterator[tuple[str, ...]]:
    """Yield one row per config class of a verdict."""
    verdict = row.decode_or_none()
    for one in verdict.rows if verdict else ():
        yield (one.config_class + (" (core)" if one.core else ""), "yes" if one.correct else "no",
               phrases.signed(one.outcome), phrases.micros(one.latency_us),
               phrases.micros(one.incumbent_us), ratio(one),
               "" if one.error_budget_used is None else f"{one.error_budget_used:.2g}")


def ratio(row: Row) -> str:
    """Return a class's speedup and interval, empty where it was not measured."""
    if row.log_ratio is None:
        return ""
    low, high = (None if one is None else math.exp(one) for one in (row.low, row.high))
    return phrases.speedup(Speedup(math.exp(row.log_ratio), low, high))
