"""The Bayesian search asks only legal configurations, none twice, and beats random search."""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
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
from harness.search.bayesian.config_table import ConfigTable
from harness.search.bayesian.gaussian_process import GaussianProcess, Hyperparameters, Points
from harness.search.space import constraints
from harness.search.space.knobs import Knob
from harness.search.space.tunable_source import Observation, Space, of_knobs
from harness.verdict import Config, Value


def space(*sizes: int) -> Space:
    choices = {f"K{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    return Space(choices=choices, default={name: values[len(values) // 2]
                                           for name, values in choices.items()})


def knob(name: str, value: int, *choices: int) -> Knob:
    return Knob(name=name, line=1, value=value, choices=choices)


def test_space_holds_the_variable_knobs() -> None:
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


def ask_all(search: BayesianSearch, rng: random.Random, budget: int = 10_000) -> list[Config]:
    """Ask until the space is exhausted, telling random scores and failures."""
    configs: list[Config] = []
    while len(configs) < budget and (config := search.ask()) is not None:
        configs.append(config)
        search.tell(config, None if rng.random() < 0.3 else rng.random())
    return configs


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10**6))
def test_default_comes_first_and_every_configuration_once(sizes: list[int], seed: int) -> None:
    made = space(*sizes)
    configs = ask_all(BayesianSearch(made, seed), random.Random(seed))
    keys = [made.key(config) for config in configs]
    assert configs[0] == made.default
    assert len(keys) == len(set(keys)) == made.size
    again = ask_all(BayesianSearch(made, seed), random.Random(seed))
    assert again == configs


def test_other_seeds_give_other_orders() -> None:
    made = space(5, 5, 5)
    orders = {tuple(map(made.key, ask_all(BayesianSearch(made, seed), random.Random(1), 20)))
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
    """A hill over the knobs with bumps and holes; higher is better."""
    key = made.key(config)
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


# Requirements


def test_only_configurations_that_meet_the_requirements_are_asked() -> None:
    made = Space(choices={"M": (16, 32, 64, 128), "N": (16, 32, 64, 128), "W": (2, 4, 8)},
                 default={"M": 16, "N": 16, "W": 2},
                 requires=("M * N <= 4096", "W != 8 or M >= 64"))
    configs = ask_all(BayesianSearch(made, 1), random.Random(1))
    legal = [(m, n, w) for m in made.choices["M"] for n in made.choices["N"]
             for w in made.choices["W"] if m * n <= 4096 and (w != 8 or m >= 64)]
    assert sorted(map(made.key, configs)) == sorted(legal)


@pytest.mark.parametrize("wide", [2, 12])
def test_requirements_hold_in_a_space_too_large_to_list(wide: int) -> None:
    choices = {f"K{i}": tuple(range(1, 33)) for i in range(wide)}
    made = Space(choices=choices, default={name: 1 for name in choices},
                 requires=("K0 % K1 == 0", "K0 * K1 < 64"))
    for config in ask_all(BayesianSearch(made, 3), random.Random(2), 40):
        assert int(config["K0"]) % int(config["K1"]) == 0 and config["K0"] * config["K1"] < 64


NAMES = ("A", "B", "C")
NUMBER = st.integers(-9, 9) | st.sampled_from(["A", "B", "C", 0.5])
AMOUNT = st.recursive(NUMBER.map(str), lambda part: st.tuples(
    part, st.sampled_from(["+", "-", "*", "/", "//", "%"]), part).map(
        lambda three: f"({three[0]} {three[1]} {three[2]})"), max_leaves=5)
COMPARED = st.tuples(AMOUNT, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), AMOUNT).map(
    " ".join)
CHAINED = st.tuples(AMOUNT, AMOUNT, AMOUNT).map(lambda three: f"{three[0]} <= {three[1]} < "
                                                              f"{three[2]}")
LOGIC = st.recursive(COMPARED | CHAINED, lambda part: st.tuples(
    part, st.sampled_from(["and", "or"]), part).map(
        lambda three: f"({three[0]} {three[1]} not ({three[2]}))"), max_leaves=4)


def computable(text: str, names: dict[str, int]) -> bool:
    """Return whether Python can evaluate every part of an expression."""
    try:
        for part in ast.walk(ast.parse(text, mode="eval").body):
            if isinstance(part, ast.expr):
                eval(compile(ast.Expression(part), "part", "eval"), {}, names)
    except ArithmeticError:
        return False
    return True


@settings(max_examples=40, deadline=None)
@given(LOGIC, st.lists(st.integers(-3, 40), min_size=1, max_size=3, unique=True))
def test_requirement_has_pythons_meaning(text: str, choices: list[int]) -> None:
    """For each configuration alone and for all together; what Python cannot compute is not met,
    also where it would not have come to that.
    """
    requirement = constraints.parse(text, NAMES)
    made = Space(choices={name: tuple(choices) for name in NAMES}, requires=(text,),
                 default={name: choices[0] for name in NAMES})
    listed = ConfigTable(made, numpy.random.default_rng(0))
    legal = {made.key(listed.config(row)) for row in range(len(listed))}
    for key in itertools.product(choices, repeat=3):
        names = dict(zip(NAMES, key, strict=True))
        expected = computable(text, names) and bool(eval(text, {}, names))
        assert requirement.met(names) == expected == (key in legal)


ODD_ONES = [
    ("A % B == 0", {"A": (1, 2, 4), "B": (0, 1, 2)}), ("A / B >= 1", {"A": (1, 2), "B": (0, 1)}),
    ("(A > 1) + (B > 1) <= 1", {"A": (1, 2, 3), "B": (1, 2, 3)}),
    ("(A > B) - (B > A) <= 0", {"A": (1, 2, 3), "B": (1, 2, 3)}),
    ("A * B <= 4096", {"A": (1, 2**32), "B": (1, 2**32)}),
    ("A * B <= 4", {"A": (1, 2, "auto"), "B": (1, 2, 4)}),
    ("A == 'auto' or A > 1", {"A": ("auto", 2, 4), "B": (1, 2)}),
    ("not A", {"A": (0, 1), "B": (1, 2)}), ("A < 0.5 < B", {"A": (0.25, 0.5), "B": (0.5, 1.0)}),
]


@pytest.mark.parametrize(("text", "choices"), ODD_ONES, ids=range(len(ODD_ONES)))
def test_odd_requirements_hold_alike_for_single_and_batch_checks(
        text: str, choices: dict[str, tuple[Value, ...]]) -> None:
    requirement = constraints.parse(text, tuple(choices))
    made = [dict(zip(choices, key, strict=True)) for key in itertools.product(*choices.values())]
    legal = [config for config in made if requirement.met(config)]
    assert 0 < len(legal) < len(made)
    search = Space(choices=choices, default=legal[0], requires=(text,))
    configs = ask_all(BayesianSearch(search, 0), random.Random(0))
    assert sorted(map(repr, configs)) == sorted(map(repr, legal))


@pytest.mark.parametrize("text", [
    "'x' * 999999999999 != A", "A * W != 1", "'%999999999d' % A != 'x'", "W + W == 'aa'"])
def test_arithmetic_on_words_is_refused(text: str) -> None:
    requirement = constraints.parse(text, ("A", "W"))
    before = time.process_time()
    assert not requirement.met({"A": 10**12, "W": "a"})
    assert time.process_time() - before < 1.0


def test_rare_legal_configurations_are_found() -> None:
    choices = {f"K{i}": tuple(range(32)) for i in range(8)}
    made = Space(choices=choices, default={name: 0 for name in choices},
                 requires=tuple(f"K{i} == K{i + 1}" for i in (0, 2, 4, 6)))
    configs = ask_all(BayesianSearch(made, 0), random.Random(0), 40)
    assert len(configs) == 40
    assert all(config[f"K{i}"] == config[f"K{i + 1}"] for config in configs for i in (0, 2, 4, 6))


@pytest.mark.parametrize(("text", "why"), [
    ("A <", "cannot read the requirement"), ("__import__('os')", "is not understood"),
    ("A.b > 1", "is not understood"), ("A[0]", "is not understood"), ("D > 1", "unknown name 'D'"),
    ("(lambda: 1)() < A", "is not understood"), ("A ** 99 > 1", "is not understood"),
    ("A > 1" + " and A > 1" * 99, "too long"), ("", "cannot read the requirement"),
    ("[x for x in A]", "is not understood"), ("None", "is not understood")])
def test_invalid_requirement_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)):
        constraints.parse(text, NAMES, "k.c:3")


def test_fixed_knob_is_a_number_in_a_requirement() -> None:
    made = of_knobs((knob("A", 2, 1, 2, 4), knob("B", 3, 1, 3)), ["A"],
                    (constraints.parse("A * B <= 6", ("A", "B")),))
    assert made.requires == ("A * 3 <= 6",)
    assert {config["A"] for config in ask_all(BayesianSearch(made, 0), random.Random(0))} == {1, 2}


# The model


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


def test_process_is_certain_near_observations_and_uncertain_far_away() -> None:
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
    """Powers of two behave alike on a machine; 96 and 48 have an odd factor."""
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


# Advice


STEEP = 0.05
"""Log ratio of one step on the hill."""


def recorded_observations(
    made: Space, seed: int, sign: float, every: int = 1
) -> tuple[Observation, ...]:
    """Another machine's recording of a slightly different hill, or of the opposite one."""
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
def test_recording_of_another_device_leads_to_the_top(every: int) -> None:
    made = space(6, 6, 6, 6)
    with_it = [
        advised(made, seed, 8, recorded_observations(made, seed, 1.0, every)) for seed in range(6)
    ]
    without = [advised(made, seed, 8, ())[0] for seed in range(6)]
    assert fmean(best for best, _ in with_it) > fmean(without) + 1.0
    assert all(search.advised for _, search in with_it)


def test_misleading_recording_is_dropped_and_costs_little() -> None:
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
def test_forged_latency_is_ignored_as_advice(latency_us: float) -> None:
    made = space(4, 4)
    forged = Observation(source="other", config={"K0": 1, "K1": 2}, latency_us=latency_us)
    search = BayesianSearch(made, 0, (*recorded_observations(made, 0, 1.0), forged))
    assert len(ask_all(search, random.Random(0))) == 16


def test_advice_outside_the_space_or_too_sparse_is_ignored() -> None:
    made = space(4, 4)
    few = recorded_observations(made, 0, 1.0)[:5]
    assert not BayesianSearch(made, 0, few).advised
    failed = tuple(
        replace(observation, latency_us=None) for observation in recorded_observations(made, 0, 1.0)
    )
    assert not BayesianSearch(made, 0, failed).advised
