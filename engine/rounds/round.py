"""One round: open its slots, let workers work, have candidates judged, keep the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from engine.history import history, round_resume
from engine.journal.records import Candidate, RoundOutcome
from engine.rounds import best_of_n, intake, opening, verdicts
from engine.rounds.active_round import ActiveRound
from engine.rounds.pool import TaskSkipped, WorkerFinished
from engine.task import Task
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictResult
from harness.formats.quantities import counted


class RoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """A round's outcome and its summary for people, computed from the journal."""

    outcome: RoundOutcome
    summary: str


def run_round(round: ActiveRound, tasks: Sequence[Task], undecided: Sequence[Candidate], *,
              apply_approvals: Callable[[], None],
              reason_to_end_workers: Callable[[int, int], str]) -> RoundResult:
    """Run one round to its end; `undecided` candidates were left by an earlier engine.

    `reason_to_end_workers` returns, given the numbers of candidates in flight and of gains, why
    the workers must end now, or "". Raises CampaignStopped when the campaign ends meanwhile,
    NoDeviceAvailable once everything in flight has finished.
    """
    round.context.round = round.n
    progress = round_resume.progress_of(round.context.reader, round.setup.id, round.n)
    retried = {candidate.slot for candidate in progress.again}
    tasks = [task for task in tasks if task.slot not in retried]
    opening.open_slots(round, tasks, progress)
    try:
        round.pool.start(tasks, round.base)
        opening.resume_retries(round, progress.again)
        opening.resume_candidates(round, undecided)
        while round.working or round.verifying:
            _handle(round, round.context.wait())
            _between_messages(round, apply_approvals)
            if round.working and (
                    reason := reason_to_end_workers(round.in_flight, len(round.gains))):
                _end_workers(round, reason)
    finally:
        round.pool.stop()
    if round.no_device is not None:
        raise round.no_device
    best_of_n.keep_best(round)
    return _result(round)


def _handle(round: ActiveRound, message: object | None) -> None:
    """Handle one message of a slot or of the verifier."""
    match message:
        case TaskSkipped():
            round.working.discard(message.task.slot)
            if message.cause is not None:
                round.drain(message.cause)
        case WorkerFinished():
            intake.take_work(round, message)
        case VerdictResult():
            verdicts.take_verdict(round, message)


def _between_messages(round: ActiveRound, apply_approvals: Callable[[], None]) -> None:
    """Carry out approvals, unless there is no device for their verdicts either."""
    if round.no_device is None:
        try:
            apply_approvals()
        except NoDeviceAvailable as error:
            round.drain(error)


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
    failed = any(slot.stage == "failed" and not slot.candidate
                 for slot in context.reader.slots(campaign, round.n))
    outcome, fresh = past.outcome(round.n, failed=failed), past.fresh(round.n)
    kinds = Counter(row.kind for row in past.decisions if row.round == round.n)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    summary = f"{counted(fresh, 'candidate')}: {counts or 'none judged'}"
    if outcome == "tie" and not fresh and not kinds:
        summary = "no slot found anything better"
    return RoundResult(outcome=outcome, summary=f"{summary}; ended early: {round.cut_reason}"
                       if round.cut_reason else summary)
