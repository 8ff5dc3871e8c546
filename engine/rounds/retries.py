"""Retries: a wrong candidate is repaired, a divergent one is split by kopt or by its agent."""

from __future__ import annotations

from engine.campaign.setup import Setup
from engine.failpoint import failpoint
from engine.history import round_resume
from engine.journal.records import Candidate
from engine.judge import candidate as candidates
from engine.judge.candidate import JudgedCandidate
from engine.rounds import repair, split_retry
from engine.rounds.active_round import ActiveRound
from engine.task import Task
from harness.errors import InputError


def begin(round: ActiveRound, judged: JudgedCandidate) -> bool:
    """Begin a candidate's next retry; return whether there is one."""
    return _begin(round, judged, judged.ruling.reason)


def begin_next(round: ActiveRound, task: Task, reason: str, repeat_of: str = "") -> bool:
    """Begin the next retry after the retry `task` produced nothing; `reason` says why.

    `task` may have repeated a known candidate (`repeat_of`): then another repair begins only if
    that candidate is wrong as well.
    """
    previous = task.repair or task.split
    if previous is None or (repeat_of and not (task.repair and _is_repairable(round, repeat_of))):
        return False
    try:
        judged = _judged_before(
            round, round.context.reader.candidate(previous.candidate, round.setup.id))
    except InputError:
        return False
    return judged is not None and _begin(round, judged, f"{_describe(task)}: {reason}")


def _begin(round: ActiveRound, judged: JudgedCandidate, reason: str) -> bool:
    entry = judged.entry
    task = _next_task(round, judged, round_resume.retries(round.context.reader, entry.candidate))
    if task is None or not _is_affordable(round, task) or not _hand_back(round, judged, task):
        return False
    with round.context.writer.transaction():
        round.keeper.refuse(entry, "repair" if task.repair else "split",
                            f"{reason}; {_describe(task)}", verdict=judged.verdict_id)
        round.meter.note(cost=cost_of(round.setup, task))
    failpoint("second-try.begun")
    round.context.tick(task.slot, "working", _describe(task))
    return True


def resume(round: ActiveRound, candidate: Candidate) -> str | None:
    """Resume a retry during which an engine was killed; return why it cannot be resumed.

    The journal says which retry it is. Raises InputError where the candidate cannot be loaded.
    """
    judged = _judged_before(round, candidate)
    if judged is None or _task_of(round, judged) is None:
        return "its task is not recorded"
    task = _next_task(round, judged, round_resume.retries(round.context.reader, candidate) - 1)
    if task is None:
        return "the manifest no longer allows it"
    if not _is_affordable(round, task):
        return "the rest of the budget does not pay for it"
    if not _hand_back(round, judged, task):
        return "no worker may begin any more"
    round.meter.note(cost=cost_of(round.setup, task))
    round.context.tick(task.slot, "working", f"{_describe(task)}, resumed")
    return None


def cost_of(setup: Setup, task: Task) -> float:
    """Return the cost of one attempt, in the manifest's unit."""
    costs = {cli.name: cli.cost for cli in setup.manifest.pool.cli}
    return costs.get(task.option, 0.0) if task.backend == "cli" else 0.0


def _judged_before(round: ActiveRound, candidate: Candidate) -> JudgedCandidate | None:
    """Return a candidate with its recorded verdict, and write its files; raises InputError."""
    entry = candidates.load(round.setup, candidate)
    verdict = round.context.recorded(entry.id, "verify", candidate.base_tree)
    if verdict is None:
        return None
    round.context.run_in_thread(lambda: round.setup.tree(entry.tree))  # the checkout may be deleted
    return round.keeper.record(entry, verdict, "verify")


def _is_repairable(round: ActiveRound, identity: str) -> bool:
    candidate = round.context.reader.candidate(identity, round.setup.id)
    verdict = round.context.recorded(identity, "verify", candidate.base_tree)
    return verdict is not None and repair.is_repairable(verdict)


def _task_of(round: ActiveRound, judged: JudgedCandidate) -> Task | None:
    return round.context.reader.task(round.setup.id, judged.entry.id)


def _next_task(round: ActiveRound, judged: JudgedCandidate, tries: int) -> Task | None:
    """Return the task of a candidate's retry number `tries` + 1, or None."""
    task, setup, entry = _task_of(round, judged), round.setup, judged.entry
    if task is None:
        return None
    if repair.is_repairable(judged.verdict):
        left_out = round_resume.recorded(round.context.reader, entry.candidate).left_out
        if repaired := repair.next_repair(task, entry, setup.tree(entry.tree), judged.ruling.reason,
                                    left_out, tries):
            return repaired
    return split_retry.next_split(
        task, entry, setup.tree(entry.tree), judged.verdict, setup.target.source,
        complaint=judged.ruling.reason, tries=tries,
        split=split_retry.BACKEND in setup.manifest.pool.backends)


def _is_affordable(round: ActiveRound, task: Task) -> bool:
    limit, cost = round.setup.manifest.budget.cost, cost_of(round.setup, task)
    return limit is None or not cost or round.meter.spent.cost + cost <= limit


def _hand_back(round: ActiveRound, judged: JudgedCandidate, task: Task) -> bool:
    """Give a slot its work back; return whether its worker may still begin."""
    handed_back = round.pool.submit_retry(task, judged.entry.candidate.base_commit)
    if handed_back:
        round.working.add(task.slot)
    return handed_back


def _describe(task: Task) -> str:
    if task.repair is not None:
        return f"repair {task.repair.attempt} of {task.repair.of}"
    return "retried for the classes that gain" if task.backend == split_retry.BACKEND else \
        "its agent is asked to split it"
