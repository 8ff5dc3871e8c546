"""What a campaign has spent over all its engines, and what it may still begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.records import Round, VerdictRow
from engine.judge.stop_rules import NOTHING, BudgetUsed
from engine.manifest.schema import BudgetSpec
from engine.task import Task

BEAT_S = 5.0
"""How often the time spent goes into the journal; a killed engine loses no more."""
ENDING_S = 2.0
"""For workers to be ended and for what they leave to be captured."""
LAST = 12
"""Verdicts that tell how long another one takes."""

GOOD = ("keep", "ask", "runner-up")
"""Decisions on what was a gain."""
_KIND = {"baseline": "baseline", "headline": "final", "headline-doubted": "final",
         "e2e": "e2e", "canary": "canary"}

RecordSpending = Callable[[float, int, float], None]


class SpendingMeter:
    """Counts one engine's seconds and hands them to the journal, which knows all engines'.

    `spend` adds seconds, trials and cost to the current round and raises LookupError while there is
    none; `before` is what earlier engines spent.
    """

    def __init__(self, spend: RecordSpending, before: BudgetUsed = NOTHING, *, running: bool = True,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._spend, self._clock = spend, clock
        self._noted = before
        self._since = clock() if running else None

    @property
    def spent(self) -> BudgetUsed:
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
        self._noted = BudgetUsed(wall_s=before.wall_s + seconds, trials=before.trials + trials,
                            cost=before.cost + cost)
        if self._since is not None:
            self._since += seconds

    def pause(self) -> None:
        """Count no more: a person wants the campaign to wait."""
        self.note()
        self._since = None

    def resume(self) -> None:
        self._since = self._clock()


def spent(rounds: Iterable[Round]) -> BudgetUsed:
    """Return what the rounds have spent, over all engines."""
    told = list(rounds)
    return BudgetUsed(wall_s=sum(r.spent_s for r in told), trials=sum(r.trials for r in told),
                 cost=sum(r.cost for r in told))


class DurationEstimates(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds things take at most, as they took so far; 0 for what is not to come."""

    verdict: float = 0.0
    final: float = 0.0
    """The best against the baseline, with all tests."""
    end_to_end: float = 0.0
    """The runs of the whole program at the end."""


def estimate_durations(verdicts: Mapping[int, VerdictRow], *,
                       end_to_end: bool = False) -> DurationEstimates:
    """Return what the newest verdicts of each kind took.

    What was never done is taken for as long as what it is most like: a verdict for the baseline's,
    the final one for the longest, the whole program for the final one.
    """
    newest: dict[str, list[float]] = {}
    for id in sorted(verdicts, reverse=True):
        told = newest.setdefault(_KIND.get(verdicts[id].purpose, "verdict"), [])
        if len(told) < LAST:
            told.append(verdicts[id].decode().wall_s)
    longest = {kind: max(told) for kind, told in newest.items()}
    first = longest.get("baseline", 0.0)
    verdict = longest.get("verdict", first)
    final = max(longest.get("final", verdict), first)
    return DurationEstimates(verdict=verdict, final=final,
                 end_to_end=longest.get("e2e", final) if end_to_end else 0.0)


def gains_of(past: CampaignHistory, candidates: int) -> int:
    """Return how many of so many candidates will be gains, if they fare as those before them."""
    judged = {d.candidate: d.kind in GOOD for d in past.decisions}
    return -(-candidates * sum(judged.values()) // len(judged)) if judged else 0


def margin_s(budget: BudgetSpec, each: DurationEstimates, candidates: int, *, cards: int = 1,
             gains: int = 0, formats: bool = False, work: int = 0) -> float:
    """Return the seconds to keep for all that comes once workers have been ended.

    That are the verdicts of the candidates in flight, side by side on the cards; one for each of
    the `gains` but the first, on the new best, in turn, and one more for each if the format command
    may change it; the final one; the whole program. `work` is room for work, in verdicts. It is
    never more than half of the budget, so that a small one allows something.
    """
    if budget.wall_s is None:
        return 0.0
    in_turn = -(-candidates // max(1, cards)) + max(0, gains - 1) + formats * gains + work
    return min(budget.wall_s / 2,
               ENDING_S + each.verdict * in_turn + each.final + each.end_to_end)


def afford(tasks: Sequence[Task], budget: BudgetSpec, used: BudgetUsed, past: CampaignHistory,
           kept_s: float, costs: Mapping[str, float]) -> list[Task]:
    """Return the tasks that the budget still allows: searches with fewer trials, if need be.

    The last task, the canonical one, is served first. `kept_s` of the wall budget are for verdicts;
    how many trials fit into the rest, earlier rounds tell. `costs` is what an attempt costs, by its
    task's option.
    """
    left = _trials_left(budget, used, past, kept_s)
    if left is not None and sum(task.trials for task in tasks) <= left:
        left = None
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


def _trials_left(budget: BudgetSpec, used: BudgetUsed, past: CampaignHistory,
                 kept_s: float) -> int | None:
    """Return how many trials a round may have, None for any number."""
    limits = [] if budget.trials is None else [max(0, budget.trials - used.trials)]
    each_s = _trial_s(past)
    if budget.wall_s is not None and each_s:
        limits.append(max(1, int((budget.wall_s - used.wall_s - kept_s) / each_s)))
    return min(limits, default=None)


def _trial_s(past: CampaignHistory) -> float:
    """Return how long rounds were at it for each trial; before there is one, half a verdict."""
    searched = [r for r in past.attempts if r.trials]
    if not searched:
        return estimate_durations(past.verdicts).verdict / 2
    return sum(r.spent_s for r in searched) / sum(r.trials for r in searched)
