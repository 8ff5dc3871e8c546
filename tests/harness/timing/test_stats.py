"""Intervals agree with scipy, and the sequential rule keeps its error rates in simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.timing import outcome as compare
from harness.timing import stats
from harness.timing.plan import Plan
from harness.timing.stats import Estimate

samples = st.lists(st.floats(-2, 2), min_size=2, max_size=40)


@settings(max_examples=100, deadline=None)
@given(samples, st.floats(1e-6, 0.5))
def test_intervals_equal_those_of_scipy(values: list[float], alpha: float) -> None:
    import scipy.stats  # imported here, as it takes half a second

    ours = stats.estimate(values, alpha)
    assert ours.mean == pytest.approx(np.mean(values), abs=1e-12)
    sem = float(scipy.stats.sem(values))
    assert ours.stderr == pytest.approx(sem, abs=1e-12)
    if sem > 1e-9:
        low, high = scipy.stats.t.interval(1 - alpha, len(values) - 1, np.mean(values), sem)
        low = max(low, ours.mean - stats.WIDEST)
        high = min(high, ours.mean + stats.WIDEST)
        assert (ours.low, ours.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
        assert ours.at(alpha) == pytest.approx((ours.low, ours.high))


def test_widest_interval_stays_finite_as_a_ratio() -> None:
    wide = stats.estimate([0.0, 3.0], 1e-9)
    for bound in (wide.low, wide.high, *wide.at(1e-12)):
        assert 0 < math.exp(bound) < math.inf
    assert math.isfinite(wide.detectable)


def test_one_sample_is_unmeasured() -> None:
    single = stats.estimate([0.3], 0.05)
    assert (single.low, single.high, single.detectable) == (-math.inf, math.inf, math.inf)
    assert compare.call_outcome(single, 0.01) == "unmeasured"
    assert not compare.is_settled(single, 0.01, 0.01)


def test_detectable_effect_is_found_in_80_percent_of_trials() -> None:
    rng = np.random.default_rng(7)
    pairs, spread, alpha = 12, 0.02, 0.01
    exact = Estimate(mean=0, stderr=spread / math.sqrt(pairs), low=0, high=0, pairs=pairs,
                     alpha=alpha)
    effect = math.log1p(exact.detectable)
    found = np.mean([stats.estimate(list(rng.normal(effect, spread, pairs)), alpha).low > 0
                     for _ in range(2000)])
    assert 0.75 < found < 0.9


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 0.2), st.integers(0, 3000), st.integers(1, 500))
def test_error_rates_of_verdicts_sum_below_the_campaign_alpha(alpha: float, planned: int,
                                                              verdicts: int) -> None:
    spent = [stats.alpha_of_verdict(alpha, planned, index) for index in range(verdicts)]
    assert sum(spent) <= alpha  # equal if the last shares are lost in rounding
    assert all(value > 0 for value in spent)
    assert spent == sorted(spent, reverse=True)


def test_looks_share_the_alpha_of_a_verdict() -> None:
    plan = Plan(alpha=0.01)
    assert plan.alpha_look * len(plan.looks) == pytest.approx(0.01)
    assert list(plan.looks) == sorted(set(plan.looks)) and plan.looks[0] >= 2


def around(mean: float, half: float, pairs: int = 9) -> Estimate:
    """Return an estimate whose interval is mean ± half at SURE, and twice as wide at its alpha."""
    from scipy.special import stdtr

    degrees = pairs - 1
    stderr = half / stats.t_quantile(1 - compare.SURE / 2, degrees)
    alpha = 2 * float(stdtr(degrees, -2 * half / stderr))
    return Estimate(mean=mean, stderr=stderr, low=mean - 2 * half, high=mean + 2 * half,
                    pairs=pairs, alpha=alpha)


OUTCOMES = [
    # mean, half width of the interval at 5 %, outcome, settled
    (0.10, 0.01, "faster", True),
    (0.10, 0.06, "tie", False),      # above zero at 5 %, not at the verdict's alpha
    (0.005, 0.001, "tie", True),     # certainly faster, by less than the margin
    (0.0, 0.005, "tie", True),
    (0.0, 0.05, "tie", False),
    (-0.05, 0.01, "slower", True),
    (-0.05, 0.06, "tie", False),
    (-0.005, 0.001, "tie", True),    # certainly slower, by less than margin and tolerance
    (-0.011, 0.008, "slower", False),
]


@pytest.mark.parametrize(("mean", "half", "outcome", "settled"), OUTCOMES)
def test_outcome_and_settling_follow_from_interval(
        mean: float, half: float, outcome: str, settled: bool) -> None:
    value = around(mean, half)
    assert compare.call_outcome(value, 0.01) == outcome
    assert compare.is_settled(value, 0.01, 0.01) is settled


def test_mean_is_weighted() -> None:
    assert stats.weighted_mean([1.0, 4.0], [3.0, 1.0]) == 1.75


def sequential(rng: np.random.Generator, effect: float, spread: float,
               plan: Plan) -> tuple[str, int]:
    """Draw pairs of one class until the rule stops; return the outcome and the number of pairs."""
    ratios: list[float] = []
    for pairs in range(1, plan.looks[-1] + 1):
        ratios.append(rng.normal(effect, spread))
        if pairs in plan.looks:
            value = stats.estimate(ratios, plan.alpha_look)
            if compare.is_settled(value, plan.margin, plan.tolerance) or pairs == plan.looks[-1]:
                return compare.call_outcome(value, plan.margin), pairs
    raise AssertionError


@pytest.mark.parametrize("spread", [0.007, 0.028, 0.1])
def test_false_gains_are_rarer_than_alpha(spread: float) -> None:
    import scipy.stats

    rng = np.random.default_rng(11)
    plan = Plan(alpha=0.05)
    trials = 800
    false = sum(sequential(rng, 0.0, spread, plan)[0] == "faster" for _ in range(trials))
    assert scipy.stats.binomtest(false, trials, plan.alpha, alternative="less").pvalue < 0.05


def test_gain_of_ten_percent_is_found() -> None:
    rng = np.random.default_rng(12)
    plan = Plan(alpha=0.001)
    results = [sequential(rng, math.log(1.1), 0.02, plan) for _ in range(300)]
    assert np.mean([outcome == "faster" for outcome, _ in results]) >= 0.95
    assert np.median([pairs for _, pairs in results]) < plan.looks[-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=2, max_size=12),
       st.floats(0.1, 5), st.floats(0.1, 5))
def test_pooled_interval_of_equal_lists_is_that_of_the_weighted_pairs(
        pairs: list[tuple[float, float]], first: float, second: float) -> None:
    pooled = stats.pooled([[a for a, _ in pairs], [b for _, b in pairs]], [first, second], 0.05)
    by_pair = stats.estimate([stats.weighted_mean(pair, [first, second]) for pair in pairs], 0.05)
    assert pooled.pairs == by_pair.pairs
    assert (pooled.mean, pooled.low, pooled.high) == pytest.approx(
        (by_pair.mean, by_pair.low, by_pair.high))


@pytest.mark.parametrize("shared", [0.0, 0.01, 0.05])
def test_pooled_interval_of_unequal_lists_keeps_alpha(shared: float) -> None:
    rng = np.random.default_rng(11)
    alpha, wrong, trials = 0.05, 0, 1000
    for _ in range(trials):
        noise = rng.normal(0, shared, 9)
        lists = [list(noise[:count] + rng.normal(0, spread, count))
                 for count, spread in ((4, 0.01), (9, 0.03), (6, 0.02))]
        value = stats.pooled(lists, [1, 2, 1], alpha)
        assert value.pairs == 4
        assert value.mean == pytest.approx(stats.weighted_mean(
            [float(np.mean(values)) for values in lists], [1, 2, 1]))
        wrong += not value.low <= 0 <= value.high
    assert wrong / trials < alpha * 1.3
