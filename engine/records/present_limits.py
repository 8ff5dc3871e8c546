"""What limits the best now: the newest survey, with the times of the verdict on the last keep."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from engine.history import time_growth
from engine.history.history import CampaignHistory
from engine.journal.decoded.recorded import verdict_of
from engine.journal.records import Bottleneck
from engine.judge.attribution import ROOFLINE
from engine.records import measured
from harness.formats.quantities import latency
from harness.verdict import Row

AT_ROOFLINE = 95.0
"""Percent of its roofline from which a class is not worth another round."""
SHARE = "% of the benchmark"
"""The metric of a bottleneck that is a class's share of a benchmark's time."""


def of_best(past: CampaignHistory) -> tuple[Bottleneck, ...]:
    """Return what limits the best, the worst first.

    A survey of a provisional best counts while that commit waits. If something was kept, rolled
    back or rejected since the newest survey, the classes get the values of the verdict on the
    provisional best, else on the best; what compilers and profilers said of the earlier source is
    left out.
    """
    surveyed = [n for n, bottlenecks in past.surveys.items() if bottlenecks]
    if not surveyed:
        return ()
    newest = tuple(past.surveys[max(surveyed)])
    if _is_current(past, max(surveyed)):
        return newest
    tip, best = past.provisional_verdict, measured.best_verdict(past)
    rows = verdict_of(tip).rows if tip else best.verdict.rows if best else ()
    total_us = math.fsum(row.latency_us or 0.0 for row in rows)
    row_of = {row.config_class: row for row in rows if row.latency_us is not None}
    limits = [_updated(limit, row_of[limit.config_class], rows, total_us) for limit in newest
              if limit.config_class in row_of and limit.metric in (ROOFLINE, SHARE)]
    return tuple(sorted(limits, key=lambda limit: (limit.value or 0.0) * (
        1 if limit.metric == ROOFLINE else -1)))


def _is_current(past: CampaignHistory, n: int) -> bool:
    """Return whether the commit that round `n` surveyed is still the best or on the line."""
    commits = [past.best, *(d.commit for d in past.decisions if d.commit and d.round < n)]
    surveyed = next((round.incumbent for round in past.rounds if round.n == n), commits[-1])
    placed = next((d.candidate for d in past.decisions if d.commit == surveyed), "")
    if not placed:
        return past.tip == past.best_after(n - 1)
    newest = next(d.kind for d in reversed(past.decisions) if d.candidate == placed)
    return past.tip == surveyed or newest in ("ask", "provisional")


def advice_once(limits: Iterable[Bottleneck]) -> list[str]:
    """Return the advice on each limit, "as above" where an earlier one has the same."""
    shown: set[str] = set()
    advices = []
    for limit in limits:
        advices.append("as above" if limit.advice in shown else limit.advice)
        shown |= {limit.advice} - {""}
    return advices


def directions(limits: Iterable[Bottleneck]) -> list[str]:
    """Return what to do about limits, one line for all that need the same: `memory in tall (41 % of
    roofline), in odd (50 % of roofline): load less`. Classes at their roofline are left out.
    """
    places: dict[tuple[str, str], list[str]] = {}
    every = list(limits)
    limits = [limit for limit in every
              if limit.metric != ROOFLINE or (limit.value or 0.0) < AT_ROOFLINE]
    if every and not limits:
        return [f"every config class reaches {AT_ROOFLINE:.0f} % of its roofline: only an "
                "algorithm that moves or computes less can gain"]
    for limit in limits:
        where, text = f" in {limit.config_class}" if limit.config_class else "", value(limit)
        places.setdefault((limit.limiter, limit.advice), []).append(
            f"{where}{text and f' ({text})'}")
    return [f"{limiter}{','.join(dict.fromkeys(named))}: {advice}"
            for (limiter, advice), named in places.items()]


def value(bottleneck: Bottleneck) -> str:
    """Return a bottleneck's value with its metric."""
    return "" if bottleneck.value is None else f"{bottleneck.value:.4g} {bottleneck.metric}"


def _updated(bottleneck: Bottleneck, row: Row, rows: tuple[Row, ...],
             total_us: float) -> Bottleneck:
    """Return a class's bottleneck with the values of the best's verdict."""
    now = f"{latency(row.latency_us)} as last measured"
    if bottleneck.metric == ROOFLINE:
        return msgspec.structs.replace(bottleneck, value=row.pct_of_roofline, detail=now)
    growth = time_growth.of_class(rows, row)
    return msgspec.structs.replace(
        bottleneck, value=100 * (row.latency_us or 0.0) / total_us, limiter=growth.limiter,
        detail=f"{now}; {growth.evidence}", advice=growth.advice)
