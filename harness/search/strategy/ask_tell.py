"""Ask a strategy for configurations: the default first, nothing twice, nothing already recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from harness.formats.json_codec import to_json
from harness.search.space.space import Space
from harness.search.trials.trials import Trial
from harness.trial_fields import Config

PATIENCE = 1000
"""After this many known configurations in a row, a strategy counts as exhausted."""


class Strategy(Protocol):
    """Proposes configurations. Deterministic: the same results lead to the same proposals."""

    def ask(self) -> Config | None: ...

    def planned(self) -> list[Config]: ...

    def tell(self, config: Config, score: float | None) -> None: ...


class AskTell:
    """The order in which the configurations of one loop are tried.

    The default comes before the strategy is asked for anything: its planning may take minutes.
    """

    def __init__(self, strategy: Strategy, space: Space) -> None:
        self._strategy, self._space = strategy, space
        self._waiting: deque[Config] = deque()
        self._seen: set[bytes] = set()
        self._has_begun = False
        self._pending: list[Trial] = []
        """Results to pass to the strategy after its first proposal."""

    def replay(self, trials: Iterable[Trial],
               cancelled: Callable[[], bool] = lambda: False) -> None:
        """Restore the strategy's state by the same calls in the same order.

        If the strategy now proposes another configuration, it only receives the results of the
        remaining trials; its proposal is tried later.
        """
        has_diverged = False
        for trial in trials:
            if cancelled():
                return
            config = None if has_diverged else self.next()
            if config is not None and config != trial.config:
                self._waiting.append(config)
                self._seen.discard(_key(config))
            has_diverged = has_diverged or config != trial.config
            self._seen.add(_key(trial.config))
            self.tell(trial)

    def next(self) -> Config | None:
        """Return the configuration to try next, None at the end."""
        if not self._seen:
            self._seen.add(_key(self._space.default))
            return dict(self._space.default)
        if not self._has_begun:
            self._begin()
        for _ in range(PATIENCE):
            config = self._waiting.popleft() if self._waiting else self._strategy.ask()
            if config is None:
                return None
            if _key(config) not in self._seen:
                self._seen.add(_key(config))
                return config
        return None

    def planned(self) -> list[Config]:
        """Return the configurations that are already known to come next."""
        known = [*self._waiting, *self._strategy.planned()]
        return [config for config in known if _key(config) not in self._seen]

    def tell(self, trial: Trial) -> None:
        """Tell the strategy a result."""
        if self._has_begun:
            self._strategy.tell(trial.config, trial.log_ratio)
        else:
            self._pending.append(trial)

    def _begin(self) -> None:
        """Ask for the first configuration, then tell the default's result, as if asked first."""
        config = self._strategy.ask()
        self._has_begun = True
        if config is not None and config != self._space.default:
            self._waiting.appendleft(config)
        for trial in self._pending:
            self.tell(trial)
        self._pending.clear()


def _key(config: Config) -> bytes:
    return to_json(sorted(config.items()))
