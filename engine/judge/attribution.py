"""What a kept change's verdict shows: which config classes gained, and whether it met its aim."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from engine.journal.records import Bottleneck, Candidate
from engine.task import GLOBAL
from harness.formats import quantities
from harness.formats.quantities import listed
from harness.timing.outcome import describe_row
from harness.verdict import Row, Verdict

NAMED = 4
"""Most classes that a text names."""
ROOFLINE = "% of roofline"
"""The metric of a bottleneck that a class's roofline gives."""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The classes that gained, the largest gain first, and the class that the change aimed at."""

    gained: tuple[Row, ...]
    classes: int
    """The number of classes that were measured."""
    bottleneck: str
    """The bottleneck that the change was aimed at, in words, without its evidence; if none is
    recorded, the class that it was aimed at, "" for all classes."""
    missed: str = ""
    """The class that the change was aimed at and its outcome; "" if that class gained."""
    limiters: dict[str, str] = {}
    """What limits each class according to its roofline."""

    @property
    def scope(self) -> str:
        """Return the classes that gained, `all` for every one."""
        if len(self.gained) == self.classes:
            return "all"
        return listed([row.config_class for row in self.gained], NAMED, "; ") or GLOBAL

    @property
    def evidence(self) -> str:
        """Return times and shares of the roofline of the classes that gained, before and after."""
        rows = listed([self._of_row(row) for row in self.gained], NAMED)
        return f"in all classes: {rows}" if self.scope == "all" else rows

    @property
    def aim(self) -> str:
        """Return what the change was aimed at, with the outcome there if it did not gain, or ""."""
        if not self.missed:
            return self.bottleneck
        return f"{self.bottleneck}, where it did not gain ({self.missed})"

    def _of_row(self, row: Row) -> str:
        before_us, now_us = before(row), row.latency_us
        if before_us is None or now_us is None:
            return f"{row.config_class} {describe_row(row)}"
        times = f"{row.config_class} {quantities.latency(before_us)} -> " \
                f"{quantities.latency(now_us)}"
        if not row.roofline_us:
            return times
        limiter = self.limiters.get(row.config_class, "")
        old_share, new_share = (min(1.0, row.roofline_us / us) for us in (before_us, now_us))
        return f"{times} ({limiter}{': ' if limiter else ''}" \
            f"{old_share:.1%} -> {new_share:.1%} of roofline)"


def before(row: Row) -> float | None:
    """Return the time of the best before a candidate: its latency times the measured ratio.

    Without a measured ratio it is the incumbent's latency. The ratio is a mean over pairs of runs;
    the latencies of the two sides are medians, whose ratio may point the other way.
    """
    if row.latency_us is None or row.log_ratio is None:
        return row.incumbent_us
    return row.latency_us * math.exp(row.log_ratio)


def attribute(candidate: Candidate, verdict: Verdict,
              bottlenecks: Sequence[Bottleneck] = ()) -> Attribution:
    """Return what a verdict shows of a change; `bottlenecks` are those of the campaign."""
    gained = sorted((row for row in verdict.rows if row.outcome == "faster"),
                    key=lambda row: row.log_ratio or 0.0, reverse=True)
    name = candidate.bottleneck.partition(" ")[0]
    named = next((row.config_class for row in bottlenecks if row.id == name), "")
    aimed = named or candidate.scope
    missed = next((f"{row.config_class} {describe_row(row)}" for row in verdict.rows
                   if row.config_class == aimed and row.outcome != "faster"), "")
    return Attribution(
        gained=tuple(gained), classes=len(verdict.rows), missed=missed,
        bottleneck=candidate.bottleneck.partition(": ")[0] or (aimed if aimed != GLOBAL else ""),
        limiters={row.config_class: row.limiter for row in bottlenecks if row.metric == ROOFLINE})
