"""The Bayesian search proposes each legal configuration at most once and beats random search."""

from __future__ import annotations

import itertools
import math
import random
import time
from dataclasses import replace
from statistics import fmean

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.search.bayesian import encoding, gaussian_process
from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.bayesian.gaussian_process import GaussianProcess, Hyperparameters, Points
from harness.search.space.tunable_source import Observation, Space, of_knobs
from harness.verdict import Config, Value
from tests.support.searches.search_case import ask_all, config_key, knob


def space(*sizes: int) -> Space:
    choices = {f"K{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    return Space(choices=choices, default={name: values[len(values) // 2]
                                           for name, values in choices.items()})


def test_space_contains_the_selected_knobs() -> None:
    knobs = (knob("A", 2, 1, 2, 4), knob("B", 0, 0, 1))
    made = of_knobs(knobs)
    assert (made.size, made.default) == (6, {"A": 2, "B": 0})
    assert of_knobs(knobs, ["B"]).size == 2
    assert made.holds({"A": 4, "B": 1})
    assert not any(map(made.holds, ({"A": 3, "B": 1}, {"A": 4}, {"A": 4, "B": 1, "C": 0})))
    with pytest.raises(InputError, match="the source declares no knob"):
        of_knobs(())
    with pytest.raises(InputError, match="no knob 'C' in the source"):
        of_knobs(knobs, ["C"])


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10**6))
def test_default_comes_first_and_every_configuration_once(sizes: list[int], seed: int) -> None:
    made = space(*sizes)
    configs = ask_all(BayesianSearch(made, seed), random.Random(seed))
    keys = [config_key(made, config) for config in configs]
    assert configs[0] == made.default
    assert len(keys) == len(set(keys)) == made.size
    again = ask_all(BayesianSearch(made, seed), random.Random(seed))
    assert again == configs


def test_other_seeds_give_other_orders() -> None:
    made = space(5, 5, 5)
    orders = {tuple(config_key(made, config) for config in
                    ask_all(BayesianSearch(made, seed), random.Random(1), 20))
              for seed in range(8)}
    assert len(orders) == 8


def test_space_of_failures_is_searched_to_its_end() -> None:
    search, count = BayesianSearch(space(4, 4), 0), 0
    while (config := search.ask()) is not None:
        search.tell(config, None)
        count += 1
    assert count == 16


def test_huge_space_can_be_searched() -> None:
    made = space(*[256] * 12)
    assert len(ask_all(BayesianSearch(made, 0), random.Random(0), 20)) == 20


def rugged(config: Config, made: Space, seed: int) -> float:
    """Return a score, higher is better: one hill over the knobs, with noise and failures (-inf)."""
    key = config_key(made, config)
    bump = random.Random(f"{seed} {key}").random()
    if bump < 0.1:
        return -math.inf
    far = sum(abs(float(here) - (seed * 7 + i * 3) % 6) for i, here in enumerate(key))
    return -far + 0.8 * bump


def chosen(made: Space, rng: random.Random) -> Config:
    return {name: rng.choice(values) for name, values in made.choices.items()}


def best_found(made: Space, seed: int, budget: int, chance: bool) -> float:
    search, rng = BayesianSearch(made, seed), random.Random(seed)
    best = -math.inf
    for _ in range(budget):
        config = chosen(made, rng) if chance else search.ask()
        assert config is not None
        score = rugged(config, made, seed)
        search.tell(config, None if score == -math.inf else score)
        best = max(best, score)
    return best


def test_search_beats_random_search_on_a_rugged_hill() -> None:
    made, seeds = space(6, 6, 6, 6), range(8)
    ours = [best_found(made, seed, 50, chance=False) for seed in seeds]
    chance = [best_found(made, seed, 50, chance=True) for seed in seeds]
    assert fmean(ours) > fmean(chance) + 0.5
    assert fmean(one >= other for one, other in zip(ours, chance, strict=True)) > 0.7


@given(st.integers(0, 10**6), st.integers(2, 14), st.integers(1, 4), st.integers(0, 2))
@settings(max_examples=25, deadline=None)
def test_gradient_matches_finite_differences(seed: int, count: int, features: int,
                                             sources: int) -> None:
    rng = numpy.random.default_rng(seed)
    points = Points(rng.random((count, features)), rng.random((count, 5)) / 3,
                    0.3 * rng.random((count, sources)))
    by = Hyperparameters(numpy.full(features, 0.5))
    objective = gaussian_process._Objective(points, rng.normal(size=count), by)
    theta = by.theta + rng.normal(size=len(by.theta)) / 3
    _, slope = objective(theta)
    step = 1e-5
    for i in range(len(theta)):
        move = numpy.eye(len(theta))[i] * step
        numeric = (objective(theta + move)[0] - objective(theta - move)[0]) / (2 * step)
        assert slope[i] == pytest.approx(numeric, rel=1e-3, abs=1e-4)


def test_gaussian_process_is_certain_near_observations_and_uncertain_far_away() -> None:
    x = numpy.linspace(0.0, 1.0, 8)[:, None]
    none = numpy.zeros((8, 0))
    points, values = Points(x, none, none), numpy.sin(6 * x[:, 0])
    by = Hyperparameters(numpy.array([0.3]))
    by.fit(points, values, 40)
    process = GaussianProcess(points, values, by)
    mean, deviation = process.predict(points)
    assert numpy.abs(mean - values).max() < 0.1
    far = Points(numpy.array([[3.0]]), none[:1], none[:1])
    assert process.predict(far)[1][0] > 3 * deviation.max()


def test_odd_factor_of_a_number_is_a_feature() -> None:
    """Powers of two have the odd factor 1, 96 and 48 the odd factor 3."""
    columns = encoding._columns((32, 48, 64, 96, 128))
    assert len(columns) == 2
    assert columns[1][0].tolist() == pytest.approx([0, math.log2(3), 0, math.log2(3), 0])
    assert len(encoding._columns((16, 32, 64))) == 1


def test_autotune_configs_are_encoded_by_the_numbers_in_them() -> None:
    words = tuple(f"triton.Config({{'BM': {m}, 'BN': 64}}, num_warps={w})"
                  for m in (32, 64, 128) for w in (4, 8))
    assert len(encoding._columns(words)) == 2
    assert len(encoding._columns(("row", "column", "tiled"))) == 3


ODD_CHOICES = [(10**15, 10**15 + 1, 10**15 + 2), (-10**17, 0, 1), (7,), ("a", "b"), (1, "a", 2.5),
               tuple(f"w{i}" for i in range(200)), (0.0, 1e-300, 1e300), (-3, -2, -1)]


@pytest.mark.parametrize("choices", ODD_CHOICES, ids=range(len(ODD_CHOICES)))
def test_odd_choices_can_be_searched(choices: tuple[Value, ...]) -> None:
    made = Space(choices={"A": choices, "B": (1, 2, 4)}, default={"A": choices[0], "B": 1})
    assert len(ask_all(BayesianSearch(made, 0), random.Random(0), 40)) == min(40, made.size)


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-5, 1e-3, 1e3, 1e300])
@pytest.mark.parametrize("advice", [True, False])
def test_scores_of_any_size_are_accepted(spread: float, advice: bool) -> None:
    made, rng = space(6, 6, 6), random.Random(1)
    search = BayesianSearch(made, 2, recorded_observations(made, 1, 1.0) if advice else ())
    for _ in range(90):
        config = search.ask()
        assert config is not None
        search.tell(config, spread * rng.gauss(0.0, 1.0))


def test_long_search_stays_fast() -> None:
    made = space(8, 8, 8, 8)
    search, rng = BayesianSearch(made, 0), random.Random(0)
    for _ in range(1_200):
        search.tell(chosen(made, rng), rng.random())
    before = time.process_time()
    for _ in range(3):
        assert search.ask() is not None
    assert time.process_time() - before < 3.0


STEEP = 0.05
"""Log ratio per unit of the hill's score."""


def recorded_observations(
    made: Space, seed: int, sign: float, every: int = 1
) -> tuple[Observation, ...]:
    """Return another machine's trials on the same hill (sign 1) or on the inverse one (-1)."""
    configs = [dict(zip(made.choices, key, strict=True))
               for key in itertools.product(*made.choices.values())][::every]
    scores = [rugged(config, made, seed) for config in configs]
    return tuple(Observation(source="other", config=config,
                             latency_us=None if score == -math.inf
                             else 1e3 * math.exp(sign * STEEP * -score))
                 for config, score in zip(configs, scores, strict=True))


def advised(made: Space, seed: int, budget: int, history: tuple[Observation, ...],
            ) -> tuple[float, BayesianSearch]:
    search, best = BayesianSearch(made, seed, history), -math.inf
    for _ in range(budget):
        config = search.ask()
        assert config is not None
        score = rugged(config, made, seed)
        search.tell(config, None if score == -math.inf else STEEP * score)
        best = max(best, score)
    return best, search


@pytest.mark.parametrize("every", [1, 7])
def test_trials_of_another_device_lead_to_better_configurations_sooner(every: int) -> None:
    made = space(6, 6, 6, 6)
    with_it = [
        advised(made, seed, 8, recorded_observations(made, seed, 1.0, every)) for seed in range(6)
    ]
    without = [advised(made, seed, 8, ())[0] for seed in range(6)]
    assert fmean(best for best, _ in with_it) > fmean(without) + 1.0
    assert all(search.advised for _, search in with_it)


def test_misleading_trials_of_another_device_are_nearly_always_dropped_and_cost_little() -> None:
    made = space(6, 6, 6, 6)
    misled = [advised(made, seed, 60, recorded_observations(made, seed, -1.0)) for seed in range(5)]
    without = [advised(made, seed, 60, ())[0] for seed in range(5)]
    assert sum(search.advised for _, search in misled) <= 1
    assert fmean(best for best, _ in misled) > fmean(without) - 0.4


def test_advice_works_in_a_space_too_large_to_list() -> None:
    choices = {f"K{i}": tuple(range(16)) for i in range(8)}
    made = Space(choices=choices, default={name: 0 for name in choices})
    rng = random.Random(0)
    configs = [chosen(made, rng) for _ in range(60)]
    seen = tuple(
        Observation(
            source="other", config=config, latency_us=1e3 + sum(map(float, config.values()))
        )
        for config in configs
    )
    search = BayesianSearch(made, 0, seen)
    assert search.advised
    for config in ask_all(search, rng, 40):
        assert config.keys() == choices.keys()


@pytest.mark.parametrize("latency_us", [0.0, -1.0, math.inf, math.nan, 5e-324, 1e308])
def test_forged_latency_in_advice_does_not_stop_the_search(latency_us: float) -> None:
    made = space(4, 4)
    forged = Observation(source="other", config={"K0": 1, "K1": 2}, latency_us=latency_us)
    search = BayesianSearch(made, 0, (*recorded_observations(made, 0, 1.0), forged))
    assert len(ask_all(search, random.Random(0))) == 16


def test_advice_with_too_few_or_only_failed_trials_is_ignored() -> None:
    made = space(4, 4)
    few = recorded_observations(made, 0, 1.0)[:5]
    assert not BayesianSearch(made, 0, few).advised
    failed = tuple(
        replace(observation, latency_us=None) for observation in recorded_observations(made, 0, 1.0)
    )
    assert not BayesianSearch(made, 0, failed).advised
