"""From paired log-ratios to intervals: process pairs are the independent samples.

Blocks inside one pair of processes share that pair's bias (memory layout, placement), however long
one samples; the mean over pairs with Student's t is therefore the estimate, and the blocks only
make each pair's own value sharp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LOOKS = (4, 6, 9, 13, 18)
POWER = 0.8
WIDEST = 100.0
"""Of a log-ratio's interval: no more than a number can hold as a ratio."""


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
        """The effect (relative) that this many pairs would have found four times in five."""
        if self.pairs < 2:
            return math.inf
        quantile = t_quantile(1 - self.alpha / 2, self.pairs - 1)
        return math.expm1(min(
            WIDEST, (quantile + t_quantile(POWER, self.pairs - 1)) * self.stderr))

    def at(self, alpha: float) -> tuple[float, float]:
        """Return the interval at another error rate."""
        half = _half(alpha, self.pairs, self.stderr)
        return self.mean - half, self.mean + half


def estimate(samples: Sequence[float], alpha: float) -> Estimate:
    """Return the mean of per-pair log-ratios and its Student interval."""
    mean = fmean(samples)
    if len(samples) < 2:
        return Estimate(mean=mean, stderr=math.inf, low=-math.inf, high=math.inf,
                        pairs=len(samples), alpha=alpha)
    stderr = stdev(samples) / math.sqrt(len(samples))
    half = _half(alpha, len(samples), stderr)
    return Estimate(mean=mean, stderr=stderr, low=mean - half, high=mean + half,
                    pairs=len(samples), alpha=alpha)


def _half(alpha: float, pairs: int, stderr: float) -> float:
    """Return half the width of Student's interval; beyond WIDEST nothing is known anyway."""
    return min(WIDEST, t_quantile(1 - alpha / 2, pairs - 1) * stderr)


def pooled(samples: Sequence[Sequence[float]], weights: Sequence[float], alpha: float) -> Estimate:
    """Return the weighted mean of several lists of per-pair log-ratios and its Student interval.

    Lists share their pairs from the first on, and so their noise; one may be longer than others.
    The variance is that of a weighted sum of means, with covariances over the pairs that two lists
    share: for lists of one length, the variance over pairs of the weighted sum. It is never less
    than it would be had every list as many pairs as the longest; degrees are those of the shortest.
    `alpha` is nominal where lists have stopped at looks of their own.
    """
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    fewest, most = min(map(len, samples)), max(map(len, samples))
    shared = estimate([weighted_mean(values, shares) for values in
                       zip(*(one[:fewest] for one in samples), strict=True)], alpha)
    if fewest == most or fewest < 2:
        return shared
    variance = math.fsum(
        a * b * _covariance(one, other) / max(len(one), len(other))
        for one, a in zip(samples, shares, strict=True)
        for other, b in zip(samples, shares, strict=True))
    stderr = math.sqrt(max(variance, shared.stderr**2 * fewest / most))
    mean = weighted_mean([fmean(one) for one in samples], shares)
    half = _half(alpha, fewest, stderr)
    return Estimate(mean=mean, stderr=stderr, low=mean - half, high=mean + half, pairs=fewest,
                    alpha=alpha)


def _covariance(one: Sequence[float], other: Sequence[float]) -> float:
    count = min(len(one), len(other))
    a, b = fmean(one[:count]), fmean(other[:count])
    return math.fsum((x - a) * (y - b) for x, y in zip(one, other, strict=False)) / (count - 1)


def t_quantile(p: float, degrees: int) -> float:
    """Return Student's t quantile for a whole number of degrees of freedom, by bisection.

    The distribution is a finite sum of powers of cos(atan(t / sqrt(n))) there (Abramowitz and
    Stegun, 26.7.3 and 26.7.4); scipy is no dependency of the harness.
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
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def alpha_per_look(alpha: float, looks: int = len(LOOKS)) -> float:
    """Split a verdict's error rate over its interim looks.

    Equal shares: by the union bound the chance that any look errs is at most `alpha`, whatever the
    dependence between them (Lan and DeMets, Biometrika 70, 1983, with the bound in place of the
    joint law).
    """
    return alpha / looks


def alpha_of_verdict(campaign_alpha: float, planned_looks: int, index: int) -> float:
    """Return the error rate of the `index`-th verdict (from 0) of a campaign.

    Half of the campaign's rate goes to its planned verdicts in equal shares, a quarter to as many
    again, and so on: the sum stays below `campaign_alpha` for ever (Bonferroni).
    """
    planned_looks = max(1, planned_looks)
    return campaign_alpha / planned_looks / 2.0 ** (index // planned_looks + 1)


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)
