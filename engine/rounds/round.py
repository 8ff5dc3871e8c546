"""Runs one round: open slots, run workers, judge candidates, place gains."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from engine.history import history, round_resume, spending
from engine.history.history import CampaignHistory
from engine.history.round_resume import OUTAGE, RoundProgress
from engine.journal.records import Candidate, Phase, Round, RoundOutcome, Slot
from engine.judge import candidate as candidates
from engine.judge.judge import breach
from engine.rounds import disk_space, judging, retries
from engine.rounds.active_round import ActiveRound
from engine.rounds.placing import Placing
from engine.rounds.pool import TaskSkipped, WorkerFinished
from engine.task import Task, scope_of
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictResult
from harness.errors import InputError
from harness.formats.quantities import counted


class RoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """A round's outcome and its summary for people, computed from the journal."""

    outcome: RoundOutcome
    summary: str


def run_round(round: ActiveRound, tasks: Sequence[Task], undecided: Sequence[Candidate], *,
              apply_approvals: Callable[[], None], show_phase: Callable[[Phase], object],
              reason_to_end_workers: Callable[[int, int], str]) -> RoundResult:
    """Run one round to its end; `undecided` candidates were left by an earlier engine.

    `reason_to_end_workers` returns, given the numbers of candidates in flight and of gains, why
    the workers must end now, or "". Raises CampaignStopped when the campaign ends meanwhile,
    NoDeviceAvailable once everything in flight has finished.
    """
    round.context.round = round.n
    progress = round_resume.progress_of(round.context.reader, round.setup.id, round.n)
    retried = {candidate.slot for candidate in progress.retrying}
    tasks = [task for task in tasks if task.slot not in retried]
    open_slots(round, tasks, progress)
    shown: Phase | None = None
    placing = Placing(round.slots, round.records, retry=partial(judging.retry, round))
    try:
        round.pool.start(tasks, round.base, _screenings_left(round, tasks))
        resume_retries(round, progress.retrying)
        resume_candidates(round, undecided)
        while True:
            phase: Phase = "OPTIMIZE" if round.working else "VALIDATE"
            if phase != shown:
                shown = phase
                show_phase(phase)
            if round.working or round.verifying:
                _handle(round, round.context.wait())
                _look_around(round, apply_approvals, reason_to_end_workers)
                continue
            if round.no_device is not None:
                raise round.no_device
            gains, round.gains = round.gains, []
            placing.place(gains)
            placing.place_verified()  # gains that a rejection has released meanwhile
            if not round.working:  # no gain that another one displaced is retried
                return _result(round)
    finally:
        round.pool.stop()
        round.context.record_notices()  # the costs of models until they were stopped


def _look_around(round: ActiveRound, apply_approvals: Callable[[], None],
                 reason_to_end_workers: Callable[[int, int], str]) -> None:
    """Carry out approvals, then end the workers if there is a reason."""
    if round.no_device is None:  # else approvals get no verdict either
        try:
            apply_approvals()
        except NoDeviceAvailable as error:
            round.drain(error)
    if round.working and (
            reason := reason_to_end_workers(
                len(round.working) + len(round.verifying), len(round.gains))):
        _end_workers(round, reason)


def _screenings_left(round: ActiveRound, tasks: Sequence[Task]) -> int | None:
    """Return how many trials the budget leaves beside those of the searches, None for no limit."""
    limit = round.setup.manifest.budget.trials
    return None if limit is None else \
        limit - round.meter.spent.trials - sum(task.trials for task in tasks)


def _handle(round: ActiveRound, message: object | None) -> None:
    """Handle one message of a slot or of the verifier."""
    match message:
        case TaskSkipped():
            round.working.discard(message.task.slot)
            if message.cause is not None:
                round.drain(message.cause)
            if message.unpaid:
                round.slots.end(message.task.slot, "not begun", message.unpaid)
        case WorkerFinished():
            judging.take_work(round, message)
        case VerdictResult():
            judging.take_verdict(round, message)


def _end_workers(round: ActiveRound, reason: str) -> None:
    """End the workers before the deadline; what they have produced is judged like any other."""
    round.cut_reason = reason
    round.context.run_in_thread(round.pool.stop)
    while not round.context.messages.empty():
        _handle(round, round.context.wait())
    for slot in sorted(round.working):
        round.slots.end(slot, "not begun", reason)
    round.working.clear()


def _result(round: ActiveRound) -> RoundResult:
    """Return the round's result from the journal, whichever engines ran it."""
    context, campaign = round.context, round.setup.id
    decision = round.setup.manifest.decision
    past = history.read(context.reader, campaign, decision.score, decision.margin)
    empty = Counter(slot.stage for slot in context.reader.slots(campaign, round.n)
                    if not slot.candidate)
    failed, unchanged = empty["failed"], empty["no change"]
    fruitless = failed + empty[OUTAGE]
    outcome = past.outcome(round.n, failed=fruitless > 0 and not unchanged)
    summary = decisions_in(past, round.n)
    if summary == NOTHING_NEW and (fruitless or outcome == "tie"):
        summary = f"{counted(unchanged, 'slot')} found nothing better" if unchanged and fruitless \
            else "no slot found anything better"
        summary += f", {failed} failed" if failed else ""
        summary += f", {empty[OUTAGE]} without a provider's answer" if empty[OUTAGE] else ""
    return RoundResult(outcome=outcome, summary=f"{summary}; ended early: {round.cut_reason}"
                       if round.cut_reason else summary)


NOTHING_NEW = "no new candidate"


def decisions_in(past: CampaignHistory, n: int) -> str:
    """Return how many candidates are new in a round, and all its decisions by kind.

    A keep of an earlier round's candidate is recorded under that round.
    """
    [round] = [round for round in past.rounds if round.n == n]
    kinds = Counter((past.round_of(row) == n, row.kind) for row in past.decisions
                    if row.round == n
                    or (row.kind in ("keep", "ask", "provisional") and row.actor == "engine"
                        and round.started_at <= row.at <= (round.ended_at or math.inf)))
    new, earlier = (", ".join(f"{count} {kind}" for (is_new, kind), count in kinds.items()
                              if is_new is which) for which in (True, False))
    fresh = past.fresh(n)
    summary = f"{counted(fresh, 'candidate')}: {new or 'none judged'}" if fresh else NOTHING_NEW
    return f"{summary}; of earlier rounds: {earlier}" if earlier else summary


RUNNING_STAGES = ("queued", "starting", "working", "searching", "comparing", "rewriting",
                  "transforming", "splitting", "reading", "waiting", "asking", "running",
                  "screening")
"""Stages of a slot whose worker has not ended: "queued", and every one that a worker reports."""


def open_slots(round: ActiveRound, tasks: Sequence[Task], progress: RoundProgress) -> None:
    """Record the round and its slots, and end the slots that an earlier engine left running."""
    context, setup = round.context, round.setup
    _make_room(round, len(tasks))
    context.writer.start_round(Round(campaign=setup.id, n=round.n, scope=scope_of(tasks),
                                     incumbent=round.base, started_at=time.time()))
    context.writer.put_slots([
        Slot(campaign=setup.id, round=round.n, slot=task.slot, kind=task.kind,
             backend=task.backend, hypothesis=task.hypothesis, bottleneck=task.bottleneck,
             device=setup.device.id, scope=task.scope, option=task.option, knobs=task.knobs,
             idea=task.idea, limiter=task.limiter, config_class=task.config_class,
             subagent=task.subagent,
             detail="waiting for a worker", started_at=time.time()) for task in tasks])
    round.working = {task.slot for task in tasks}
    for slot in context.reader.slots(setup.id, round.n):
        if slot.slot not in round.working | progress.continuing and slot.stage in RUNNING_STAGES \
                and not slot.candidate:
            round.slots.end(slot.slot, "ended", "its engine was killed")
    round.meter.note(cost=sum(spending.declared_cost(task, setup.manifest.pool)
                              for task in tasks))


def _make_room(round: ActiveRound, slots: int) -> None:
    """Delete checkouts until the round fits on the disk. Raises EnvironmentFault."""
    setup, repo = round.setup, round.setup.repo
    setup.tree(repo.base)
    if notice := disk_space.make_room(
            setup.folder.path, base_tree=repo.tree_of(repo.base), slots=slots,
            cards=len(setup.devices), keep={repo.tree_of(round.base)},
            limit_bytes=disk_space.limit_of(setup)):
        round.context.writer.event(setup.id, "log", message=notice)


def resume_retries(round: ActiveRound, again: Sequence[Candidate]) -> None:
    """Resume the retries during which an earlier engine was killed."""
    for candidate in again:
        try:
            refusal = "the campaign ends" if round.closing else retries.resume(round, candidate)
        except InputError as error:
            refusal = str(error)
        if refusal is not None:
            round.slots.end(candidate.slot, "ended", f"not tried again: {refusal}", candidate.id)


def resume_candidates(round: ActiveRound, undecided: Sequence[Candidate]) -> None:
    """Judge the candidates that an earlier engine captured and did not decide on."""
    for candidate in undecided:
        try:
            entry = candidates.load(round.setup, candidate)
        except InputError as error:
            round.slots.move(candidate, "closed", "failed", str(error))
            continue
        if ruling := breach(entry.violations):
            round.slots.refuse(entry, "reject", ruling.reason)
            continue
        judged = round.keeper.rulings.judged_before(entry)
        if judged is None:
            judging.request(round, entry)
        elif candidate.round == round.n and candidate.state == "captured":
            judging.take_ruling(round, judged)
        elif judged.is_gain:
            round.gains.append(judged)
        else:
            judging.retry_or_close(round, judged)
