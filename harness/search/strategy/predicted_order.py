"""Order a strategy's planned configurations by their predicted latency, the fastest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from harness.search.strategy.ask_tell import Strategy
from harness.trial_fields import Config

Expect = Callable[[Sequence[Config]], Sequence[float]]
"""Returns the predicted latencies (us) of configurations, infinity for those that cannot run."""


class PredictedOrder:
    """Reorders the configurations that a strategy asks for independently of results.

    None is left out, and those that follow from results keep their place.
    """

    def __init__(self, strategy: Strategy, expect: Expect) -> None:
        self._strategy, self._expect = strategy, expect
        self._waiting: deque[Config] = deque()

    def ask(self) -> Config | None:
        if not self._waiting:
            count = max(1, len(self._strategy.planned()))
            batch = [config for _ in range(count)
                     if (config := self._strategy.ask()) is not None]
            if len(batch) > 1:
                order = sorted(zip(self._expect(batch), range(len(batch)), strict=True))
                batch = [batch[number] for _, number in order]
            self._waiting.extend(batch)
        return self._waiting.popleft() if self._waiting else None

    def planned(self) -> list[Config]:
        return [*self._waiting, *self._strategy.planned()]

    def tell(self, config: Config, score: float | None) -> None:
        self._strategy.tell(config, score)
