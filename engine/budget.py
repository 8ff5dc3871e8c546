"""What a campaign has spent over all its engines, and what it may still begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from engine.history import Past
from engine.journal.records import Round, VerdictRow
from engine.manifest import Budget
from engine.stopping import NOTHING, Spent
from engine.workers.base import Task

BEAT_S = 5.0
"""How often the time spent goes into the journal; a killed engine loses no more."""
ENDING_S = 2.0
"""For workers to be ended and for what they leave to be captured."""
LAST = 12
"""Verdicts that tell how long another one takes."""

Spend = Callable[[float, int, float], None]


class Meter:
    """Counts one engine's seconds and hands them to the journal, which knows all engines'.

    `spend` adds seconds, trials and cost to the current round and raises LookupError while there is
    none; `before` is what earlier engines spent.
    """

    def __init__(self, spend: Spend, before: Spent = NOTHING, *, running: bool = True,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._spend, self._clock = spend, clock
        self._noted = before
        self._since = clock() if running else None

    @property
    def spent(self) -> Spent:
        """What all engines have spent up to now."""
        return msgspec.structs.replace(self._noted, wall_s=self._noted.wall_s + self._pending_s)

    @property
    def _pending_s(self) -> float:
        """Seconds that the journal does not know yet."""
        return 0.0 if self._since is None else self._clock() - self._since

    def beat(self) -> None:
        """Hand over what was spent, if that is worth a write."""
        if self._pending_s >= BEAT_S:
            self.note()

    def note(self, *, trials: int = 0, cost: float = 0.0) -> None:
        """Hand over what was spent up to now."""
        seconds = self._pending_s
        try:
            self._spend(seconds, trials, cost)
        except LookupError:
            return  # before the first round: it will count there
        before = self._noted
        self._noted = Spent(wall_s=before.wall_s + seconds, trials=before.trials + trials,
                            cost=before.cost + cost)
        if self._since is not None:
            self._since += seconds

    def pause(self) -> None:
        """Count no more: a person wants the campaign to wait."""
        self.note()
        self._since = None

    def resume(self) -> None:
        self._since = self._clock()


def spent(rounds: Iterable[Round]) -> Spent:
    """Return what the rounds have spent, over all engines."""
    told = list(rounds)
    return Spent(wall_s=sum(r.spent_s for r in told), trials=sum(r.trials for r in told),
                 cost=sum(r.cost for r in told))


class _Wall(msgspec.Struct, frozen=True):
    wall_s: float = 0.0


def verdict_s(verdicts: Mapping[int, VerdictRow]) -> float:
    """Return how long a verdict takes at most, as the newest ones took; 0 if none is recorded."""
    newest = [verdicts[id] for id in sorted(verdicts)[-LAST:]]
    return max((msgspec.json.decode(row.body, type=_Wall).wall_s for row in newest), default=0.0)


def margin_s(budget: Budget, each_s: float, candidates: int) -> float:
    """Return the seconds to keep for ending workers and for the verdicts in flight.

    Besides the candidates' there is the headline's. It is never more than half of the budget, so
    that a small one allows something.
    """
    if budget.wall_s is None:
        return 0.0
    return min(budget.wall_s / 2, ENDING_S + each_s * (candidates + 1))


def afford(tasks: Sequence[Task], budget: Budget, used: Spent, past: Past, kept_s: float,
           costs: Mapping[str, float]) -> list[Task]:
    """Return the tasks that the budget still allows: searches with fewer trials, if need be.

    The last task, the canonical one, is served first. `kept_s` of the wall budget are for verdicts;
    how many trials fit into the rest, earlier rounds tell. `costs` is what an attempt costs, by its
    task's option.
    """
    left = _trials_left(budget, used, past, kept_s)
    money = float("inf") if budget.cost is None else budget.cost - used.cost
    searches = sum(task.trials > 0 for task in tasks)
    allowed: list[Task] = []
    for task in reversed(tasks):
        cost = costs.get(task.option, 0.0) if task.backend == "cli" else 0.0
        if cost > money:
            continue
        money -= cost
        if task.trials and left is not None:
            trials = min(task.trials, -(-left // searches))
            searches, left = searches - 1, left - trials
            if not trials:
                continue
            task = msgspec.structs.replace(task, trials=trials)
        allowed.append(task)
    return allowed[::-1]


def _trials_left(budget: Budget, used: Spent, past: Past, kept_s: float) -> int | None:
    """Return how many trials a round may have, None for any number."""
    limits = [] if budget.trials is None else [max(0, budget.trials - used.trials)]
    each_s = _trial_s(past)
    if budget.wall_s is not None and each_s:
        limits.append(max(1, int((budget.wall_s - used.wall_s - kept_s) / each_s)))
    return min(limits, default=None)


def _trial_s(past: Past) -> float:
    """Return how long rounds were at it for each trial; before there is one, half a verdict."""
    searched = [r for r in past.attempts if r.trials]
    if not searched:
        return verdict_s(past.verdicts) / 2
    return sum(r.spent_s for r in searched) / sum(r.trials for r in searched)
