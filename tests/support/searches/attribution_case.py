"""A change aimed at one config class, with a verdict that may show its gain in another one."""

from __future__ import annotations

import math

from engine.journal.records import Bottleneck
from harness.verdict import Row, Verdict
from tests.support.dashboards import samples

BOTTLENECKS = tuple(Bottleneck(
    campaign="rms", round=2, rank=rank, id=f"b2.{rank}", kernel="pa", config_class=name,
    limiter=limiter, metric="% of roofline", value=18.0, detail="", advice="")
    for rank, (name, limiter) in enumerate((("mtp=8", "compute"), ("mtp=1", "memory")), 1))
CANDIDATE = samples.candidate(
    hypothesis="LANES against compute: more multiply-adds in flight", scope="mtp=8",
    bottleneck="b2.1 compute in mtp=8 (18 % of roofline)")


def verdict(*, aimed: float, tie: bool = False) -> Verdict:
    """Return a verdict with a gain of 2x in mtp=1 and the log ratio `aimed` in mtp=8."""
    return samples.verdict(rows=tuple(Row(
        config_class=name, correct=True, outcome=outcome, latency_us=10.0, log_ratio=ratio,
        low=ratio - 0.01, high=ratio + 0.01, stderr=0.002, pairs=6, roofline_us=2.0)
        for name, ratio, outcome in (("mtp=1", math.log(2), "faster"),
                                     ("mtp=8", aimed, "tie" if tie else "faster"))))
