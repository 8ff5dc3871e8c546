"""Asking a strategy: the default first, nothing twice, and nothing that is recorded already."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from harness.formats.json_codec import to_json
from harness.search.space.space import Config, Space
from harness.search.trials.trials import Trial

PATIENCE = 1000
"""Known configurations in a row after which a strategy is taken to have no other."""


class Strategy(Protocol):
    """What proposes configurations. It must ask the same again when it is told the same."""

    def ask(self) -> Config | None: ...

    def planned(self) -> list[Config]: ...

    def tell(self, config: Config, score: float | None) -> None: ...


class AskTell:
    """The order in which the configurations of one loop are tried.

    The default comes before the strategy is asked for anything: to plan may take it minutes.
    """

    def __init__(self, strategy: Strategy, space: Space) -> None:
        self._strategy, self._space = strategy, space
        self._waiting: deque[Config] = deque()
        self._seen: set[bytes] = set()
        self._begun = False
        self._untold: list[Trial] = []
        """What the strategy is told as soon as it has been asked for the first time."""

    def replay(self, trials: Iterable[Trial],
               cancelled: Callable[[], bool] = lambda: False) -> None:
        """Bring the strategy to where it was: asked the same and told the same, in order.

        One that asks something else by now is only told; what it asked is tried later.
        """
        astray = False
        for trial in trials:
            if cancelled():
                return
            asked = None if astray else self.next()
            if asked is not None and asked != trial.config:
                self._waiting.append(asked)
                self._seen.discard(_key(asked))
            astray = astray or asked != trial.config
            self._seen.add(_key(trial.config))
            self.tell(trial)

    def next(self) -> Config | None:
        """Return what to try next, None at the end."""
        if not self._seen:
            self._seen.add(_key(self._space.default))
            return dict(self._space.default)
        if not self._begun:
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
        """Return what is known already to be asked next."""
        known = [*self._waiting, *self._strategy.planned()]
        return [config for config in known if _key(config) not in self._seen]

    def tell(self, trial: Trial) -> None:
        if self._begun:
            self._strategy.tell(trial.config, trial.log_ratio)
        else:
            self._untold.append(trial)

    def _begin(self) -> None:
        """Ask for the default, then tell what came of it: as if it had been asked for at once."""
        asked = self._strategy.ask()
        self._begun = True
        if asked is not None and asked != self._space.default:
            self._waiting.appendleft(asked)
        for trial in self._untold:
            self.tell(trial)
        self._untold.clear()


def _key(config: Config) -> bytes:
    return to_json(sorted(config.items()))
