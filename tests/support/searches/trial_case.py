"""Trials of a small search space, and a search whose results depend only on configurations."""

from __future__ import annotations

import math
import random
from typing import Any

from harness.search.space.tunable_source import Space
from harness.search.strategy import AskTell
from harness.search.trials.trials import Trial
from harness.verdict import Config

SPACE = Space(choices={"A": (1, 2, 4, 8), "B": (0.5, 0.25), "C": ("off", "on")},
              default={"A": 2, "B": 0.5, "C": "off"})


def trial(gain: float | None, config: Config | None = None, *, number: int = 0,
          **fields: Any) -> Trial:
    """Return a trial that is `gain` times as fast as the incumbent; None: it failed."""
    defaults: dict[str, Any] = {"number": number, "config": {**SPACE.default, **(config or {})},
                                "correctness": "PASS", "tag": "tried"}
    if gain is None:
        defaults |= {"correctness": "FAIL", "tag": "revert", "reason": "wrong"}
    else:
        defaults |= {"log_ratio": math.log(gain), "latency_us": 10 / gain,
                     "latency_kind": "measured-cpu"}
    return Trial(**(defaults | fields))


def tried(walk: AskTell, budget: int, first: int = 0) -> list[Trial]:
    """Continue the search with results that depend only on the configuration."""
    trials: list[Trial] = []
    while len(trials) < budget and (config := walk.next()) is not None:
        rng = random.Random(repr(sorted(config.items())))
        made = trial(None if rng.random() < 0.3 else 0.5 + rng.random(), config,
                     number=first + len(trials))
        walk.tell(made)
        trials.append(made)
    return trials
