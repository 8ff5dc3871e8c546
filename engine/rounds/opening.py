"""The start of a round: disk room, its slots in the journal, what an earlier engine left to do."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.history.round_resume import RoundProgress
from engine.journal.records import Candidate, Round, Slot
from engine.judge import candidate as candidates
from engine.judge.judge import breach
from engine.rounds import disk_space, retries, verdicts
from engine.rounds.active_round import ActiveRound
from engine.task import Task, scope_of
from harness.errors import InputError

RUNNING_STAGES = ("queued", "starting", "working", "searching", "rewriting", "reading", "waiting")
"""Stages of a slot whose worker has not ended."""


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
             started_at=time.time()) for task in tasks])
    round.working = {task.slot for task in tasks}
    for slot in context.reader.slots(setup.id, round.n):
        if slot.slot not in round.working | progress.continuing and slot.stage in RUNNING_STAGES \
                and not slot.candidate:
            round.slots.end(slot.slot, "ended", "its engine was killed")
    round.meter.note(cost=sum(retries.cost_of(setup, task) for task in tasks))


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
            resumed = "the campaign ends" if round.closing else retries.resume(round, candidate)
        except InputError as error:
            resumed = str(error)
        if isinstance(resumed, str):
            round.slots.end(candidate.slot, "ended", f"not tried again: {resumed}", candidate.id)


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
        verdict = round.context.recorded(entry.id, "verify", candidate.base_tree)
        if verdict is None:
            verdicts.request(round, entry)
            continue
        judged = round.keeper.record(entry, verdict, "verify")
        if candidate.round == round.n and candidate.state == "captured":
            verdicts.take_ruling(round, judged)
        elif judged.is_gain:
            round.gains.append(judged)
        else:
            verdicts.retry_or_close(round, judged)
