"""Which configuration to try next, and which trial is the best so far."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from harness.formats.json_codec import to_json
from harness.search.space.tunable_source import Space, complexity
from harness.search.trials.trials import Trial
from harness.verdict import TRUST, Config

PATIENCE = 1000
"""After this many proposals in a row that were tried before, a strategy counts as exhausted."""
FIRST_FOR_ALL = 12
"""After this many results, the strategies of single classes take turns with the common one."""


class Strategy(Protocol):
    """Proposes configurations. Deterministic: the same results lead to the same proposals."""

    def ask(self) -> Config | None: ...

    def planned(self) -> list[Config]: ...

    def tell(self, config: Config, score: float | None) -> None: ...


class AskTell:
    """Orders the configurations to try: the default, `starts`, then proposals; none twice."""

    def __init__(self, strategy: Strategy, space: Space,
                 starts: Sequence[Config] = ()) -> None:
        self._strategy, self._space = strategy, space
        self._waiting: deque[Config] = deque(starts)
        self._seen: set[bytes] = set()

    def replay(self, trials: Iterable[Trial], cancelled: Callable[[], bool] = lambda: False,
               tell: Callable[[Trial], None] | None = None) -> None:
        """Restore the strategy by repeating the calls that led to recorded trials.

        After the first proposal that differs from the record, the strategy is asked for no more:
        it only gets the results. If given, `tell` is called instead of the method.
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
            (tell or self.tell)(trial)

    def next(self) -> Config | None:
        """Return the configuration to try next, None at the end."""
        if not self._seen:
            self._seen.add(_key(self._space.default))
            return dict(self._space.default)
        for _ in range(PATIENCE):
            config = self._waiting.popleft() if self._waiting else self._strategy.ask()
            if config is None:
                return None
            if _key(config) not in self._seen:
                self._seen.add(_key(config))
                return config
        return None

    def planned(self) -> list[Config]:
        """Return the configurations that certainly or likely come next."""
        known = [*self._waiting, *self._strategy.planned()]
        return [config for config in known if _key(config) not in self._seen]

    def tell(self, trial: Trial) -> None:
        """Tell the strategy a result."""
        self._strategy.tell(trial.config, trial.log_ratio)


def _key(config: Config) -> bytes:
    return to_json(sorted(config.items()))


class Sweep:
    """Proposes listed configurations in their order, whatever the results."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._left = deque(configs)

    def ask(self) -> Config | None:
        return dict(self._left.popleft()) if self._left else None

    def planned(self) -> list[Config]:
        return list(self._left)

    def tell(self, config: Config, score: float | None) -> None:
        """Ignore a result."""


class PredictedOrder:
    """Sorts the proposals that a strategy has planned by predicted latency; drops none."""

    def __init__(self, strategy: Strategy,
                 latencies_us: Callable[[Sequence[Config]], Sequence[float]]) -> None:
        self._strategy, self._latencies_us = strategy, latencies_us
        self._waiting: deque[Config] = deque()

    def ask(self) -> Config | None:
        if not self._waiting:
            count = max(1, len(self._strategy.planned()))
            batch = [config for _ in range(count)
                     if (config := self._strategy.ask()) is not None]
            if len(batch) > 1:
                order = sorted(zip(self._latencies_us(batch), range(len(batch)), strict=True))
                batch = [batch[number] for _, number in order]
            self._waiting.extend(batch)
        return self._waiting.popleft() if self._waiting else None

    def planned(self) -> list[Config]:
        return [*self._waiting, *self._strategy.planned()]

    def tell(self, config: Config, score: float | None) -> None:
        self._strategy.tell(config, score)


class RoundRobin:
    """Alternates between a strategy for all classes and one per class; each has its own scores."""

    def __init__(self, make: Callable[[], Strategy]) -> None:
        self._make = make
        self._overall = make()
        self._of_class: dict[str, Strategy] = {}
        self._turns = itertools.cycle([""])
        self._result_count = 0

    def search_classes(self, names: tuple[str, ...]) -> None:
        """Give classes turns of their own; a single class needs none."""
        if len(names) > 1:
            self._of_class = {name: self._make() for name in names}
            self._turns = itertools.cycle([turn for name in names for turn in ("", name)])

    def ask(self) -> Config | None:
        turn = next(self._turns) if self._result_count >= FIRST_FOR_ALL else ""
        return (self._of_class[turn] if turn else self._overall).ask()

    def planned(self) -> list[Config]:
        return self._overall.planned()

    def tell(self, config: Config, score: float | None,
             by_class: Mapping[str, float] | None = None) -> None:
        """Tell all strategies a result; a class without a score counts as failed."""
        self._result_count += 1
        self._overall.tell(config, score)
        for name, strategy in self._of_class.items():
            strategy.tell(config, (by_class or {}).get(name))


class Incumbent:
    """The best of the trials it has taken.

    Only correct trials whose latency is not withheld count; with `measured_only`, only those with
    a ratio. Measured trials outrank reported ones, and these outrank predictions. A trial that is
    faster by the margin wins; within the margin the simpler one wins, if it is also within the
    margin of the fastest, so that small losses do not add up.
    """

    def __init__(self, space: Space, margin: float, *, measured_only: bool = False) -> None:
        self.best: Trial | None = None
        self._space, self._measured_only = space, measured_only
        self._margin = math.log1p(margin)
        self._fastest = -math.inf

    def take(self, trial: Trial) -> bool:
        """Compare one trial with the best; return whether it is the new best."""
        if not trial.correct or trial.withheld or (self._measured_only
                                                   and trial.log_ratio is None):
            return False
        trust = _trust(trial)
        if self.best is None or trust > _trust(self.best):
            self.best, self._fastest = trial, _score(trial)
            return True
        if trust < _trust(self.best) or trial.latency_us is None:
            return False
        score = _score(trial)
        self._fastest = max(self._fastest, score)
        if score - _score(self.best) < self._margin and not (
                self._fastest - score < self._margin and complexity(self._space, trial.config)
                < complexity(self._space, self.best.config)):
            return False
        self.best = trial
        return True


def _trust(trial: Trial) -> int:
    return -1 if trial.latency_kind is None else TRUST[trial.latency_kind]


def _score(trial: Trial) -> float:
    """Return the number that compares trials of equal trust, from the paired ratio or latency."""
    if trial.log_ratio is not None:
        return trial.log_ratio
    return -math.inf if trial.latency_us is None else -math.log(trial.latency_us)
