"""Decide from a config class's interval whether it is faster, a tie, slower or unmeasured."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Literal

from harness.formats import quantities
from harness.timing.stats import Estimate
from harness.verdict import ClassOutcome, Row

SURE = 0.05
"""Error rate of the outcome `slower` and of a contradiction by the other time: an error rejects a
gain, but never keeps a wrong one."""
DOUBT = math.log1p(0.05)
"""How much longer the other time must seem, as a log-ratio, for more pairs to be measured."""


def call_outcome(value: Estimate, margin: float, *, again: Estimate | None = None,
                 other: Estimate | None = None) -> ClassOutcome:
    """Return faster, tie, slower or unmeasured.

    Faster needs the whole interval above zero, at the verdict's share of the campaign's error
    rate, and either an estimate of at least `margin` or a second measurement (`again`) whose
    interval is above zero too. The time that is not scored (`other`) must not be longer.
    """
    if value.pairs < 2:
        return "unmeasured"
    threshold = math.log1p(margin)
    if value.low > 0 and (value.mean >= threshold or (again is not None and again.low > 0)):
        return "tie" if other_time_disagrees(other) else "faster"
    if value.at(SURE)[1] < 0 and value.mean <= -threshold:
        return "slower"
    return "tie"


def row_word(row: Row) -> ClassOutcome | Literal["uncertain"]:
    """Return a class's outcome; a tie whose interval is wide is uncertain, a wrong class broken."""
    effect = row.outcome == "tie" and quantities.effect(row.log_ratio, row.low, row.high)
    return "broken" if not row.correct else "uncertain" if effect == "uncertain" else row.outcome


def row_interval(row: Row) -> tuple[float | None, float | None]:
    """Return the interval of a class's log-ratio at the error rate that its outcome rests on."""
    if row.outcome != "slower" or row.log_ratio is None or row.stderr is None or row.pairs < 2:
        return row.low, row.high
    return Estimate(mean=row.log_ratio, stderr=row.stderr, low=0.0, high=0.0, pairs=row.pairs,
                    alpha=SURE).at(SURE)


def describe_row(row: Row) -> str:
    """Return a class's outcome with its size: `12.3% faster`, `4.83x slower`, `uncertain`."""
    word = row_word(row)
    has_size = word in ("faster", "slower") and row.log_ratio is not None
    return quantities.change(row.log_ratio) if has_size else word


def is_small_gain(value: Estimate, margin: float) -> bool:
    """Return whether a gain is certain but below the margin."""
    return value.pairs > 1 and value.low > 0 and value.mean < math.log1p(margin)


def other_time_disagrees(other: Estimate | None) -> bool:
    """Return whether the time that is not scored has certainly become longer."""
    return other is not None and other.pairs > 1 and other.at(SURE)[1] < 0


def other_time_in_doubt(other: Estimate | None) -> bool:
    """Return whether the time that is not scored seems to be longer, but is too noisy to say."""
    return other is not None and other.mean < -DOUBT and not other_time_disagrees(other)


def is_lost(value: Estimate, tolerance: float) -> bool:
    """Return whether a class is so clearly slower that no other measurement matters."""
    return value.pairs > 1 and value.at(SURE / 5)[1] < -5 * math.log1p(tolerance)


def is_hopeless(values: Collection[Estimate], margin: float, tolerance: float) -> bool:
    """Return whether a class is clearly slower and no class has a gain that a split could keep."""
    return any(is_lost(value, tolerance) for value in values) and \
        all(value.mean < math.log1p(margin) for value in values)


def is_settled(value: Estimate, margin: float, tolerance: float,
               other: Estimate | None = None) -> bool:
    """Return whether more pairs could hardly change the outcome of this class."""
    if value.pairs < 2:
        return False
    low, high = value.at(SURE)
    if value.low > 0 and value.mean >= math.log1p(margin):
        return not other_time_in_doubt(other)
    if high < -math.log1p(tolerance):
        return True
    return high < math.log1p(margin) and low > -math.log1p(tolerance)
