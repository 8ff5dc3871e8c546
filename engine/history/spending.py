"""What a campaign has spent over all its engines, and what it can still afford."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import VerdictRow
from engine.journal.records import Round
from engine.judge import stop_rules
from engine.judge.stop_rules import NOTHING, BudgetUsed
from engine.manifest.pool_schema import PoolSpec
from engine.manifest.schema import BudgetSpec
from engine.task import Task
from engine.verify import reference_lines

BEAT_S = 5.0
"""How often spent time is recorded; a killed engine loses no more than this."""
ENDING_S = 2.0
"""Time to end the workers and to capture their changes."""
LAST = 12
"""How many of the newest verdicts of a kind estimate how long the next one takes."""

GOOD = ("keep", "ask", "provisional", "runner-up")
"""Decisions on gains."""
_KIND = {"baseline": "baseline", "headline": "final", "headline-doubted": "final",
         "provisional": "final", "e2e": "e2e", "canary": "canary"}
"""By the purpose of a verdict: which durations it counts with, by default those of candidates."""

RecordSpending = Callable[[float, int, float], None]


class SpendingMeter:
    """Counts one engine's seconds and records them in the journal, which sums up all engines.

    `spend` adds seconds, trials and cost to the current round, and raises LookupError before the
    first round; `before` is what earlier engines spent. `used_usd` returns the dollars that models
    have cost; the journal records these after each answer.
    """

    def __init__(self, spend: RecordSpending, before: BudgetUsed = NOTHING, *, running: bool = True,
                 clock: Callable[[], float] = time.monotonic,
                 used_usd: Callable[[], float] = lambda: 0.0) -> None:
        self._spend, self._clock, self._used_usd = spend, clock, used_usd
        self._recorded = before
        self._since = clock() if running else None

    @property
    def spent(self) -> BudgetUsed:
        """What all engines have spent until now."""
        return msgspec.structs.replace(
            self._recorded, wall_s=self._recorded.wall_s + self._pending_s,
            cost_usd=self._used_usd())

    @property
    def _pending_s(self) -> float:
        """Seconds that are not recorded yet."""
        return 0.0 if self._since is None else self._clock() - self._since

    def beat(self) -> None:
        """Record the spent time if at least BEAT_S seconds are pending."""
        if self._pending_s >= BEAT_S:
            self.note()

    def note(self, *, trials: int = 0, cost: float = 0.0) -> None:
        """Record the time spent until now, with trials and cost."""
        seconds = self._pending_s
        try:
            self._spend(seconds, trials, cost)
        except LookupError:
            return  # before the first round: the time counts for that round
        before = self._recorded
        self._recorded = BudgetUsed(wall_s=before.wall_s + seconds, trials=before.trials + trials,
                                    cost=before.cost + cost)
        if self._since is not None:
            self._since += seconds

    def pause(self) -> None:
        """Stop counting while a person has paused the campaign."""
        self.note()
        self._since = None

    def resume(self) -> None:
        self._since = self._clock()


def spent(rounds: Iterable[Round]) -> BudgetUsed:
    """Return what rounds have spent, over all engines."""
    rounds = list(rounds)
    return BudgetUsed(wall_s=sum(r.spent_s for r in rounds), trials=sum(r.trials for r in rounds),
                      cost=sum(r.cost for r in rounds))


class DurationEstimates(msgspec.Struct, frozen=True, kw_only=True):
    """Upper estimates of durations, seconds; 0 for a step that the campaign does not have."""

    verdict: float = 0.0
    final: float = 0.0
    """The best against the baseline, with all tests."""
    end_to_end: float = 0.0
    """The runs of the whole program at the end."""


def estimate_durations(verdicts: Mapping[int, VerdictRow], *,
                       end_to_end: bool = False) -> DurationEstimates:
    """Return the longest durations among the newest verdicts of each kind.

    A kind without a verdict takes as long as the most similar one: a verdict as the baseline's,
    the final verdict as a verdict, the whole program as the final verdict. The final verdict never
    takes less than the baseline's.
    """
    newest: dict[str, list[float]] = {}
    for id in sorted(verdicts, reverse=True):
        if verdicts[id].purpose == reference_lines.PURPOSE:
            continue
        durations = newest.setdefault(_KIND.get(verdicts[id].purpose, "verdict"), [])
        if len(durations) < LAST:
            durations.append(verdict_of(verdicts[id]).wall_s)
    longest = {kind: max(durations) for kind, durations in newest.items()}
    baseline = longest.get("baseline", 0.0)
    verdict = longest.get("verdict", baseline)
    final = max(longest.get("final", verdict), baseline)
    return DurationEstimates(verdict=verdict, final=final,
                             end_to_end=longest.get("e2e", final) if end_to_end else 0.0)


def gains_of(past: CampaignHistory, candidates: int) -> int:
    """Return how many of `candidates` are expected to be gains, at the campaign's rate so far."""
    is_gain = {d.candidate: d.kind in GOOD for d in past.decisions}
    return -(-candidates * sum(is_gain.values()) // len(is_gain)) if is_gain else 0


def margin_s(budget: BudgetSpec, durations: DurationEstimates, candidates: int, *, cards: int = 1,
             gains: int = 0, formats: bool = False, work: int = 0) -> float:
    """Return the seconds to keep for everything that follows once the workers have ended.

    - the verdicts of the candidates in flight, in parallel on the cards;
    - for each of the `gains` but the first, one after the other, a verdict on the new best;
    - for each gain one more verdict if the format command may change it;
    - the final verdict and the run of the whole program;
    - `work`: time for the next piece of work, counted in verdicts.

    The margin is at most half the budget, so that a small budget allows something.
    """
    if budget.wall_s is None:
        return 0.0
    in_turn = -(-candidates // max(1, cards)) + max(0, gains - 1) + formats * gains + work
    return min(budget.wall_s / 2,
               ENDING_S + durations.verdict * in_turn + durations.final + durations.end_to_end)


def declared_cost(task: Task, pool: PoolSpec) -> float:
    """Return the cost that the manifest declares for an attempt, in the manifest's unit."""
    costs = {cli.name: cli.cost for cli in pool.cli}
    return costs.get(task.option, 0.0) if task.backend == "cli" else 0.0


def unpaid(task: Task, pool: PoolSpec, budget: BudgetSpec, used: BudgetUsed) -> str:
    """Return why the budget does not cover one more attempt, "" if it does.

    A declared cost must fit into what is left. A model's cost is not known beforehand: its attempt
    starts while some of the budget is left, and ends when all of it is used.
    """
    cost = declared_cost(task, pool)
    if budget.cost is not None and cost and used.cost + cost > budget.cost:
        return f"its cost of {cost:g} is more than what is left of the budget of {budget.cost:g}"
    return stop_rules.models_over_budget(budget, used) if asks_model(task, pool) else ""


def asks_model(task: Task, pool: PoolSpec) -> bool:
    """Return whether a task's worker is a language model, as far as kopt can know."""
    agents = {cli.name for cli in pool.cli if cli.agent is not None}
    return task.backend == "agent" or (task.backend == "cli" and task.option in agents)


def afford(tasks: Sequence[Task], pool: PoolSpec, budget: BudgetSpec, used: BudgetUsed,
           past: CampaignHistory, kept_s: float) -> list[Task]:
    """Return the tasks that the budget allows; searches get fewer trials if necessary.

    The last task, the fixed slot's, gets its share first. `kept_s` seconds of the wall budget are
    reserved for verdicts; how many trials fit into the rest is estimated from earlier rounds.
    """
    left = _trials_left(budget, used, past, kept_s)
    if left is not None and sum(task.trials for task in tasks) <= left:
        left = None
    searches = sum(task.trials > 0 for task in tasks)
    allowed: list[Task] = []
    for task in reversed(tasks):
        if unpaid(task, pool, budget, used):
            continue
        used = msgspec.structs.replace(used, cost=used.cost + declared_cost(task, pool))
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
    """Return how many trials a round may have, None if there is no limit."""
    limits = [] if budget.trials is None else [max(0, budget.trials - used.trials)]
    each_s = _trial_s(past)
    if budget.wall_s is not None and each_s:
        limits.append(max(1, int((budget.wall_s - used.wall_s - kept_s) / each_s)))
    return min(limits, default=None)


def _trial_s(past: CampaignHistory) -> float:
    """Return the mean seconds of a trial in earlier rounds; before any, half a verdict's.

    A trial never counts as longer than a verdict: most of a coding agent's round is other work than
    its trials, which are screenings.
    """
    searched = [r for r in past.attempts if r.trials]
    verdict_s = estimate_durations(past.verdicts).verdict
    if not searched:
        return verdict_s / 2
    return min(sum(r.spent_s for r in searched) / sum(r.trials for r in searched),
               verdict_s or math.inf)
