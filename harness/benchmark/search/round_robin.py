"""Strategies in turn: for the whole table, and for single config classes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from harness.search.space.space import Config
from harness.search.strategy.ask_tell import Strategy

ALONE = 12
"""Proposals that are for the whole table before classes have a turn: all learn from them."""


class RoundRobin:
    """Proposes what one strategy asks for the whole table, then one for a class, and so on.

    Whatever is tried, all of them are told, each the score that it is after.
    """

    def __init__(self, make: Callable[[], Strategy]) -> None:
        self._make = make
        self._overall = make()
        self._classes: dict[str, Strategy] = {}
        self._order = itertools.cycle([""])
        self._told: list[tuple[Config, Mapping[str, float]]] = []

    def care_for(self, names: tuple[str, ...]) -> None:
        """Give some classes their turns; one class alone is the whole table."""
        if len(names) > 1:
            self._classes = {name: self._make() for name in names}
            self._order = itertools.cycle(
                [turn for name in names for turn in ("", name)])

    def ask(self) -> Config | None:
        turn = next(self._order) if len(self._told) >= ALONE else ""
        return (self._classes[turn] if turn else self._overall).ask()

    def planned(self) -> list[Config]:
        return self._overall.planned()

    def tell(self, config: Config, score: float | None,
             by_class: Mapping[str, float] | None = None) -> None:
        """Tell all strategies; a class that is not named has failed with the whole."""
        scores = by_class or {}
        self._told.append((config, scores))
        self._overall.tell(config, score)
        for name, strategy in self._classes.items():
            strategy.tell(config, scores.get(name))
