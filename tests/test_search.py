"""The search behind ask and tell: its promises, and that it searches better than chance."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.knobs import Knob
from harness.search.space import Config, Space, of_knobs
from harness.search.strategy import CoordinateSearch


def space(*sizes: int) -> Space:
    choices = {f"K{i}": tuple(range(size)) for i, size in enumerate(sizes)}
    return Space(choices=choices, default={name: values[len(values) // 2]
                                           for name, values in choices.items()})


def knob(name: str, value: int, *choices: int) -> Knob:
    return Knob(name=name, line=1, value=value, choices=choices)


def test_a_space_of_knobs() -> None:
    knobs = (knob("A", 2, 1, 2, 4), knob("B", 0, 0, 1))
    made = of_knobs(knobs)
    assert (made.size, made.default) == (6, {"A": 2, "B": 0})
    assert of_knobs(knobs, ["B"]).size == 2
    assert {made.key(n) for n in made.neighbours({"A": 1, "B": 0})} == {(2, 0), (4, 0), (1, 1)}
    assert made.key(made.neighbours({"A": 1, "B": 0})[-1]) == (4, 0)  # the farthest comes last
    with pytest.raises(InputError, match="the source declares no knob"):
        of_knobs(())
    with pytest.raises(InputError, match="no knob 'C' in the source"):
        of_knobs(knobs, ["C"])


def asked(search: CoordinateSearch, rng: random.Random, budget: int = 10_000) -> list[Config]:
    """Ask until the end, telling random scores and failures."""
    configs: list[Config] = []
    while len(configs) < budget and (config := search.ask()) is not None:
        configs.append(config)
        search.tell(config, None if rng.random() < 0.3 else rng.random())
    return configs


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10**6))
def test_default_first_nothing_twice_everything_once(sizes: list[int], seed: int) -> None:
    made = space(*sizes)
    configs = asked(CoordinateSearch(made, seed), random.Random(seed))
    keys = [made.key(config) for config in configs]
    assert configs[0] == made.default
    assert len(keys) == len(set(keys)) == made.size
    again = asked(CoordinateSearch(made, seed), random.Random(seed))
    assert again == configs


def test_other_seeds_search_otherwise() -> None:
    made = space(5, 5, 5)
    orders = {tuple(map(made.key, asked(CoordinateSearch(made, seed), random.Random(1), 20)))
              for seed in range(8)}
    assert len(orders) == 8


def test_only_failures_leave_the_default_as_the_best() -> None:
    search = CoordinateSearch(space(4, 4), 0)
    while (config := search.ask()) is not None:
        search.tell(config, None)
    assert (search.best, search.best_score) == (search.space.default, None)


def test_a_huge_space_can_be_searched() -> None:
    made = space(*[256] * 12)
    assert len(asked(CoordinateSearch(made, 0), random.Random(0), 50)) == 50


def rugged(config: Config, made: Space, seed: int) -> float:
    """A hill over the knobs with bumps on it and holes in it; higher is better."""
    key = made.key(config)
    bump = random.Random(f"{seed} {key}").random()
    if bump < 0.1:
        return -math.inf
    far = sum(abs(float(here) - (seed * 7 + i * 3) % 6) for i, here in enumerate(key))
    return -far + 0.8 * bump


def found(made: Space, seed: int, budget: int, chance: bool) -> float:
    search, rng = CoordinateSearch(made, seed), random.Random(seed)
    best = -math.inf
    for _ in range(budget):
        config = made.random(rng) if chance else search.ask()
        assert config is not None
        score = rugged(config, made, seed)
        search.tell(config, None if score == -math.inf else score)
        best = max(best, score)
    return best


def test_it_beats_chance_on_a_rugged_hill() -> None:
    made, seeds = space(6, 6, 6, 6), range(60)
    ours = [found(made, seed, 60, chance=False) for seed in seeds]
    chance = [found(made, seed, 60, chance=True) for seed in seeds]
    assert fmean(ours) > fmean(chance) + 0.5
    assert fmean(one >= other for one, other in zip(ours, chance, strict=True)) > 0.7


def test_it_finds_the_top_of_a_small_hill_within_its_budget() -> None:
    made = space(6, 6, 6)
    tops = [max(rugged(dict(zip(made.choices, (a, b, c), strict=True)), made, seed)
                for a in range(6) for b in range(6) for c in range(6)) for seed in range(40)]
    ours = [found(made, seed, 80, chance=False) for seed in range(40)]
    assert fmean(one == top for one, top in zip(ours, tops, strict=True)) > 0.5
    assert fmean(top - one for one, top in zip(ours, tops, strict=True)) < 0.4
