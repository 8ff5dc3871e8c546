"""Intervals from paired log-ratios: process pairs are the independent samples.

The blocks of one process pair share its bias (memory layout, placement), however many are taken.
The estimate is therefore the mean over pairs with Student's t; blocks only sharpen each pair's
value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

LOOKS = (4, 6, 9, 13, 18)
POWER = 0.8
WIDEST = 100.0
"""Largest half width of a log-ratio's interval, so that its ratios stay finite."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean log-ratio with a two-sided interval at `alpha` over `pairs` process pairs."""

    mean: float
    stderr: float
    low: float
    high: float
    pairs: int
    alpha: float

    @property
    def detectable(self) -> float:
        """The relative effect that this many pairs find with a probability of 80 %."""
        if self.pairs < 2:
            return math.inf
        quantile = t_quantile(1 - self.alpha / 2, self.pairs - 1)
        return math.expm1(min(
            WIDEST, (quantile + t_quantile(POWER, self.pairs - 1)) * self.stderr))

    def at(self, alpha: float) -> tuple[float, float]:
        """Return the interval at another error rate."""
        half = _half_width(alpha, self.pairs, self.stderr)
        return self.mean - half, self.mean + half


def estimate(samples: Sequence[float], alpha: float) -> Estimate:
    """Return the mean of per-pair log-ratios and its Student interval."""
    mean = fmean(samples)
    if len(samples) < 2:
        return Estimate(mean=mean, stderr=math.inf, low=-math.inf, high=math.inf,
                        pairs=len(samples), alpha=alpha)
    squares = math.fsum((value - mean) ** 2 for value in samples)
    stderr = math.sqrt(squares / (len(samples) - 1) / len(samples))
    half = _half_width(alpha, len(samples), stderr)
    return Estimate(mean=mean, stderr=stderr, low=mean - half, high=mean + half,
                    pairs=len(samples), alpha=alpha)


def _half_width(alpha: float, pairs: int, stderr: float) -> float:
    """Return half the width of Student's interval, at most WIDEST."""
    return min(WIDEST, t_quantile(1 - alpha / 2, pairs - 1) * stderr)


def pooled(samples: Sequence[Sequence[float]], weights: Sequence[float], alpha: float) -> Estimate:
    """Return the weighted mean of several lists of per-pair log-ratios and its Student interval.

    Lists share their first pairs, and so their noise; their lengths may differ. The variance is
    that of a weighted sum of means, with covariances over the pairs that two lists share; for lists
    of equal length it is the variance over pairs of the weighted sum. It is at least the variance
    if all lists had the length of the longest. The degrees of freedom are those of the shortest.
    `alpha` is nominal if lists stopped at different looks.
    """
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    fewest, most = min(map(len, samples)), max(map(len, samples))
    shared = estimate([weighted_mean(values, shares) for values in
                       zip(*(values[:fewest] for values in samples), strict=True)], alpha)
    if fewest == most or fewest < 2:
        return shared
    variance = math.fsum(
        a * b * _covariance(first, second) / max(len(first), len(second))
        for first, a in zip(samples, shares, strict=True)
        for second, b in zip(samples, shares, strict=True))
    stderr = math.sqrt(max(variance, shared.stderr**2 * fewest / most))
    mean = weighted_mean([fmean(values) for values in samples], shares)
    half = _half_width(alpha, fewest, stderr)
    return Estimate(mean=mean, stderr=stderr, low=mean - half, high=mean + half, pairs=fewest,
                    alpha=alpha)


def _covariance(first: Sequence[float], second: Sequence[float]) -> float:
    count = min(len(first), len(second))
    a, b = fmean(first[:count]), fmean(second[:count])
    return math.fsum((x - a) * (y - b) for x, y in zip(first, second, strict=False)) / (count - 1)


@functools.lru_cache(maxsize=4096)
def t_quantile(p: float, degrees: int) -> float:
    """Return Student's t quantile for an integer number of degrees of freedom, by bisection.

    For such a number the distribution function is a finite sum of powers of cos(atan(t / sqrt(n)))
    (Abramowitz and Stegun, 26.7.3 and 26.7.4). The harness must run without scipy.
    """
    if p < 0.5:
        return -t_quantile(1 - p, degrees)
    low, high = 0.0, 1.0
    while _t_within(high, degrees) < 2 * p - 1 and high < 1e15:
        low, high = high, 4 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _t_within(middle, degrees) < 2 * p - 1 else (low, middle)
    return high


def _t_within(t: float, degrees: int) -> float:
    """Return the probability that |T| <= t."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term = cosine if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if is_odd else 2, degrees, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


def alpha_per_look(alpha: float, looks: int = len(LOOKS)) -> float:
    """Return the error rate of each look: equal shares of the verdict's.

    By the union bound, the probability that any look errs is at most `alpha`, for any
    dependence (Lan and DeMets, Biometrika 70, 1983, with the bound in place of the joint
    distribution).
    """
    return alpha / looks


def alpha_of_verdict(campaign_alpha: float, planned_verdicts: int, index: int) -> float:
    """Return the error rate of the `index`-th verdict (from 0) of a campaign.

    Half of the campaign's rate goes to its planned verdicts in equal shares, a quarter to as many
    again, and so on: the sum always stays below `campaign_alpha` (Bonferroni).
    """
    planned_verdicts = max(1, planned_verdicts)
    return campaign_alpha / planned_verdicts / 2.0 ** (index // planned_verdicts + 1)


def finite(value: float) -> float | None:
    """Return a finite value, None for any other."""
    return value if math.isfinite(value) else None


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)


def geometric_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted geometric mean of positive values."""
    return math.exp(weighted_mean(list(map(math.log, values)), weights))


def mean_of_all(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the weighted geometric mean, None where a value is missing or zero."""
    known = [value for value in values if value]
    return geometric_mean(known, weights) if len(known) == len(values) else None
