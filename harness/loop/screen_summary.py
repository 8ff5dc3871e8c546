"""Sums up a loop's trial: its ratio to the initial configuration, and a latency above the floor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

from harness.case import Errors
from harness.evaluate import device_limits, verdict_rows
from harness.evaluate.verdict_rows import EvaluationResults
from harness.loop.quick_timing import BestQuickTimes
from harness.roofline import measured_peaks, roofline
from harness.roofline.ceilings import Ceilings
from harness.roofline.roofline import Roofline
from harness.runners.session import Session
from harness.search.trials.trials import Screened, latency_kind
from harness.timing import stats
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import SCREEN
from harness.verdict import Verdict

CLEAR = 1.5
"""A trial this many times slower than the best in its first blocks is not timed further."""


class ScreenSummary:
    """Sums up trials and remembers the best one's first blocks."""

    def __init__(self, session: Session) -> None:
        self.session, self.target = session, session.target
        self.best = BestQuickTimes(session.target)
        self._ceilings: Ceilings | None = None
        self._roofline: Roofline | None = None

    def read_limits(self) -> None:
        """Get the device's ceilings; a CPU's may be measured now. Raises EnvironmentFault."""
        session = self.session
        self._ceilings = device_limits.ceilings_of(session)
        peaks = None if session.several else measured_peaks.cached(session.device)
        self._roofline = roofline.of_device(session.device, self.target, self._ceilings, peaks,
                                            cold=SCREEN.cache == "cold")

    def clear_loser(self, first_ns: Mapping[str, float]) -> Screened | None:
        """Return the result of a trial whose first blocks are far too slow, None for any other."""
        behind = self.best.behind(first_ns)
        if behind <= math.log(CLEAR):
            return None
        return Screened(correctness="PASS", log_ratio=self.best.log_ratio - behind,
                        latency_us=self.best.latency_us(first_ns),
                        latency_kind=latency_kind(self.session.device, self.target.language),
                        reason=f"{math.exp(behind):.3g} times slower than the best in its first "
                               "blocks: not timed further")

    def may_be_best(self, timings: Mapping[str, ClassTiming]) -> bool:
        """Return whether a trial is at most the screening margin slower than the best."""
        return self._log_ratio(timings) > self.best.log_ratio - math.log1p(SCREEN.margin)

    def screened(self, errors: Mapping[str, Errors],
                 timings: Mapping[str, ClassTiming]) -> Screened:
        """Sum up a timed trial; a latency below the physical floor is withheld."""
        results = EvaluationResults(
            target=self.target, plan=SCREEN, errors=errors, timings=timings,
            ceilings=self._ceilings, roofline=self._roofline,
            on_cpu=self.session.on_cpu, same=False)
        rows, findings = verdict_rows.rows(results)
        if findings:
            return Screened(correctness="PASS", reason="; ".join(
                f"latency withheld: {finding.detail}" for finding in findings))
        verdict = verdict_rows.with_overall(Verdict(valid=True, correct=True, rows=rows), results)
        log_ratio = self._log_ratio(timings)
        assert verdict.latency_us is not None and math.isfinite(log_ratio)
        return Screened(correctness="PASS", log_ratio=log_ratio, latency_us=verdict.latency_us,
                        latency_kind=verdict.latency_kind, roofline_us=verdict.roofline_us,
                        pct_of_roofline=verdict.pct_of_roofline)

    def _log_ratio(self, timings: Mapping[str, ClassTiming]) -> float:
        classes = self.target.classes
        return stats.weighted_mean([median(timings[each.name].log_ratios) for each in classes],
                                   [each.weight for each in classes])
