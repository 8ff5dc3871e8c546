"""Alternate between strategies: one for the whole table, others for some classes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from harness.search.strategy.ask_tell import Strategy
from harness.trial_fields import Config

FIRST_FOR_ALL = 12
"""Proposals for the whole table before classes have turns; all strategies learn from them."""


class RoundRobin:
    """Alternates between the strategy of the whole table and those of the classes.

    Every strategy receives each trial, with the score of its own table or class.
    """

    def __init__(self, make: Callable[[], Strategy]) -> None:
        self._make = make
        self._overall = make()
        self._of_class: dict[str, Strategy] = {}
        self._turns = itertools.cycle([""])
        self._told = 0

    def search_classes(self, names: tuple[str, ...]) -> None:
        """Give classes turns of their own; a single class is the whole table and gets none."""
        if len(names) > 1:
            self._of_class = {name: self._make() for name in names}
            self._turns = itertools.cycle([turn for name in names for turn in ("", name)])

    def ask(self) -> Config | None:
        turn = next(self._turns) if self._told >= FIRST_FOR_ALL else ""
        return (self._of_class[turn] if turn else self._overall).ask()

    def planned(self) -> list[Config]:
        return self._overall.planned()

    def tell(self, config: Config, score: float | None,
             by_class: Mapping[str, float] | None = None) -> None:
        """Tell all strategies; a class without a score has failed with the whole table."""
        self._told += 1
        self._overall.tell(config, score)
        for name, strategy in self._of_class.items():
            strategy.tell(config, (by_class or {}).get(name))
