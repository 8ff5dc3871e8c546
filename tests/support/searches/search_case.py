"""Knobs of a small space, and a loop that asks a search for every configuration."""

from __future__ import annotations

import random

from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space.knobs import Knob
from harness.search.space.tunable_source import Space
from harness.verdict import Config, Value


def knob(name: str, value: int, *choices: int) -> Knob:
    return Knob(name=name, line=1, value=value, choices=choices)


def config_key(space: Space, config: Config) -> tuple[Value, ...]:
    """Return a configuration as a hashable tuple."""
    return tuple(config[name] for name in space.choices)


def ask_all(search: BayesianSearch, rng: random.Random, budget: int = 10_000) -> list[Config]:
    """Ask until the space is exhausted, with random scores and failures; return what was asked."""
    configs: list[Config] = []
    while len(configs) < budget and (config := search.ask()) is not None:
        configs.append(config)
        search.tell(config, None if rng.random() < 0.3 else rng.random())
    return configs
