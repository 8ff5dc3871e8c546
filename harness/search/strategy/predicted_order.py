"""A strategy that is led: of what it has planned, the likely fastest is asked for first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from harness.search.space.space import Config
from harness.search.strategy.ask_tell import Strategy

Expect = Callable[[Sequence[Config]], Sequence[float]]
"""Returns what configurations are expected to take (us), infinity for what cannot run."""


class PredictedOrder:
    """Hands out in order of expectation what a strategy asks for whatever it is told.

    Nothing is left out, and what the strategy asks for by what it was told keeps its place.
    """

    def __init__(self, strategy: Strategy, expect: Expect) -> None:
        self._strategy, self._expect = strategy, expect
        self._waiting: deque[Config] = deque()

    def ask(self) -> Config | None:
        if not self._waiting:
            count = max(1, len(self._strategy.planned()))
            asked = [one for _ in range(count) if (one := self._strategy.ask()) is not None]
            if len(asked) > 1:
                order = sorted(zip(self._expect(asked), range(len(asked)), strict=True))
                asked = [asked[number] for _, number in order]
            self._waiting.extend(asked)
        return self._waiting.popleft() if self._waiting else None

    def planned(self) -> list[Config]:
        return [*self._waiting, *self._strategy.planned()]

    def tell(self, config: Config, score: float | None) -> None:
        self._strategy.tell(config, score)
