"""Which configuration to try next, behind ask and tell: coordinate moves and random jumps."""

from __future__ import annotations

import random

from harness.knobs import Value
from harness.search.space import Config, Space

EXPLORE = 0.3
PATIENCE = 200


class CoordinateSearch:
    """Seeded local search for small budgets; the first question is always the default.

    It walks from the best point seen, one knob at a time, and jumps at random in between, so that
    a rugged space does not hold it. `tell` takes a score to maximise, None for a failure.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self.best: Config = dict(space.default)
        self.best_score: float | None = None
        self._rng = random.Random(seed)
        self._seen: set[tuple[Value, ...]] = set()

    def ask(self) -> Config | None:
        """Return a configuration not asked before, or None when the space is used up."""
        if len(self._seen) >= self.space.size:
            return None
        config = self._next()
        self._seen.add(self.space.key(config))
        return config

    def tell(self, config: Config, score: float | None) -> None:
        if score is not None and (self.best_score is None or score > self.best_score):
            self.best, self.best_score = dict(config), score

    def _next(self) -> Config:
        if not self._seen:
            return dict(self.space.default)
        fresh = [c for c in self.space.neighbours(self.best) if self.space.key(c) not in self._seen]
        if fresh and self._rng.random() > EXPLORE:
            return self._rng.choice(fresh[: max(4, len(self.space.choices))])
        for _ in range(PATIENCE):
            config = self.space.random(self._rng)
            if self.space.key(config) not in self._seen:
                return config
        return fresh[0] if fresh else self._first_unseen()

    def _first_unseen(self) -> Config:
        import itertools

        names = list(self.space.choices)
        for values in itertools.product(*self.space.choices.values()):
            if values not in self._seen:
                return dict(zip(names, values, strict=True))
        raise AssertionError("asked although the space is used up")
