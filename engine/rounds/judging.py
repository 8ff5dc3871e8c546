"""From a worker's result to a ruling."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.history.round_resume import OUTAGE
from engine.judge import candidate as candidates
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.judge.judge import breach
from engine.lineage.candidate_rulings import AGAIN
from engine.repository.patches import hygiene
from engine.rounds import retries
from engine.rounds.active_round import ActiveRound
from engine.rounds.pool import WorkerFinished
from engine.task import Task
from engine.verify.fleet_device import FailsOnHealthyDevices, NoDeviceAvailable
from engine.verify.verifier import VerdictResult
from engine.workers import inbox
from harness.errors import InputError
from harness.formats import file_copy
from harness.formats.text import quoted


def take_work(round: ActiveRound, finished: WorkerFinished) -> None:
    """Record what a worker did and turn its change, if there is one, into a candidate."""
    task = finished.task
    round.working.discard(task.slot)
    round.meter.note(trials=len(finished.report.trials) + finished.report.screenings)
    round.records.trials(round.n, task, finished.report.trials, round.context.writer)
    file_copy.remove(round.setup.folder.searches(task.slot))
    round.records.worker_log(round.n, task)
    _capture(round, finished)
    if task.backend == "inbox" and task not in round.remeasured.values():
        _empty_inbox(round, task)


def _empty_inbox(round: ActiveRound, task: Task) -> None:
    """Move a submission out of the inbox: the journal has its result now."""
    try:
        inbox.take(Path(task.option))
    except OSError as error:
        round.context.writer.event(round.setup.id, "warning", message=(
            f"a patch stays in the inbox: {error.strerror or error}"))


def _capture(round: ActiveRound, finished: WorkerFinished) -> None:
    """Request a verdict on a worker's change, or end its slot where there is none to judge."""
    task, report = finished.task, finished.report
    if not report.ok:
        _end_failed(round, finished)
        return
    if not finished.change:
        left_out, hypothesis = _left_out(finished), report.hypothesis
        summary = report.summary + left_out + (
            f"; the worker says: {quoted(hypothesis)}" if hypothesis else "")
        gave_up = task.repair is not None and not report.cut and not left_out
        if gave_up or not _start_retry(round, task, f"no change; {summary}"):
            stage = "failed" if report.cut else "no change"
            round.slots.end(task.slot, OUTAGE if report.is_outage else stage, summary)
        return
    entry = candidates.make(round.setup, finished.change, finished.base, round=round.n,
                            slot=task.slot, bottleneck=task.bottleneck,
                            hypothesis=report.hypothesis or task.hypothesis)
    if not round.context.writer.add_candidate(
            entry.candidate, task, left_out=hygiene.describe_dropped(entry.patch.dropped),
            cut=report.cut):
        if report.cut and (task.repair or task.split):
            _end_failed(round, finished)
        elif _may_measure_again(round, entry.id, asked=task.backend == "inbox"):
            _measure_again(round, task, entry.id)
        elif not _start_retry(round, task, f"the same change as candidate {entry.id}", entry.id):
            round.slots.end_repeat(task, entry.id)
        return
    if ruling := breach(entry.violations):
        round.slots.refuse(entry, "reject", ruling.reason)
        return
    request(round, entry)


def _may_measure_again(round: ActiveRound, identity: str, *, asked: bool) -> bool:
    """Return whether a known candidate may be measured again: a person has `asked`, or a
    worker has proposed a near gain once more that was measured only once.
    """
    reader, campaign = round.context.reader, round.setup.id
    newest = reader.newest_decision(campaign, identity)
    if reader.candidate(identity, campaign).state != "closed" or newest is None \
            or not newest.allows_repeat or identity in round.verifying:
        return False
    return asked or (newest.near_gain is not None and
                     len(reader.verdicts(campaign, candidate=identity, limit=2)) == 1)


def _measure_again(round: ActiveRound, task: Task, identity: str) -> None:
    """Request another verdict on a known candidate, which spends its own share of the error rate.

    A submission stays in the inbox until it is decided, so that a killed engine loses no request.
    """
    reader, campaign = round.context.reader, round.setup.id
    known = candidates.load(round.setup, reader.candidate(identity, campaign))
    number = len(reader.verdicts(campaign, candidate=identity)) + 1
    request(round, known, f"{AGAIN}{number}", slot=task.slot)
    if identity in round.verifying:
        round.remeasured[identity] = task
    else:
        round.slots.end(task.slot, "failed", "its files cannot be written", identity)


def _end_failed(round: ActiveRound, finished: WorkerFinished) -> None:
    """Start the next retry of a slot whose worker failed before it made anything new, or end it."""
    task, why = finished.task, finished.report.summary
    if not _start_retry(round, task, why):
        round.slots.end(task.slot, "ended" if round.cut_reason else "failed", why)


def _left_out(finished: WorkerFinished) -> str:
    """Return which files were left out of an empty change, and why."""
    dropped = finished.change.patch.dropped if finished.change is not None else ()
    if not dropped:
        return ""
    files = hygiene.describe_dropped(dropped) or f"{dropped[0].path} ({dropped[0].reason})"
    return f"; left out {files}"


def _start_retry(round: ActiveRound, task: Task, reason: str, repeat_of: str = "") -> bool:
    """Start another retry after one that produced nothing; return whether one was started.

    If no device is left, nothing starts and it returns True: the next engine starts the retry.
    """
    if not round.may_retry or not (task.repair or task.split):
        return False
    return round.no_device is not None or retries.begin_next(round, task, reason, repeat_of)


def request(round: ActiveRound, entry: CandidateTree, purpose: str = "verify", *,
            slot: str = "") -> None:
    """Request a verdict; reject a candidate whose files cannot be written.

    `slot` is the one that shows its progress, by default the candidate's own.
    """
    try:
        round.context.run_in_thread(lambda: round.setup.tree(entry.tree))
    except (InputError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        round.slots.refuse(entry, "reject", f"its files cannot be written: {error}")
        return
    round.verifying[entry.id] = entry
    job = round.keeper.rulings.job(entry, purpose)
    if slot:
        job = msgspec.structs.replace(job, slot=slot)
    if job.slot:
        round.context.tick(job.slot, "verifying", "waiting for the device")
    round.context.submit(job)


def take_verdict(round: ActiveRound, result: VerdictResult) -> None:
    """Judge the verdict that has arrived, or handle the fault that prevented it."""
    entry = round.verifying.pop(result.job.candidate, None)
    if entry is None:
        return
    if isinstance(result.fault, FailsOnHealthyDevices):
        # this candidate is the likely cause: undecided, it would stop every later engine too
        round.slots.refuse_unjudged(entry, result.fault.what)
    elif isinstance(result.fault, NoDeviceAvailable):
        round.remeasured.pop(entry.id, None)
        round.drain(result.fault)  # the next engine requests its verdict
    elif result.fault is not None:
        round.slots.take_fault(entry, result.fault)
    elif result.verdict is not None:
        take_ruling(round, round.keeper.rulings.record(entry, result.verdict, result.job.purpose))
    if task := round.remeasured.pop(entry.id, None):
        newest = round.context.reader.candidate(entry.id, round.setup.id)
        round.slots.end(task.slot, "measured", f"again: {newest.reason}", entry.id)
        if task.backend == "inbox":
            _empty_inbox(round, task)


def take_ruling(round: ActiveRound, judged: JudgedCandidate) -> None:
    """Hold a gain until the round ends; retry or close anything else."""
    round.records.verdict(round.n, judged)
    if judged.is_gain:
        round.gains.append(judged)
        round.slots.move(judged.entry.candidate, "verified", "verified", judged.ruling.reason)
    else:
        retry_or_close(round, judged)


def retry_or_close(round: ActiveRound, judged: JudgedCandidate) -> None:
    """Begin a repair or a split where that may help, else close the candidate."""
    if round.no_device is not None and judged.entry.candidate.round == round.n:
        return  # its verdict is recorded: the next engine decides whether its slot tries again
    if not retry(round, judged):
        round.slots.close(judged)


def retry(round: ActiveRound, judged: JudgedCandidate) -> bool:
    """Begin a repair or a split where that may help; return whether it began."""
    candidate = judged.entry.candidate
    return round.may_retry and candidate.round == round.n and \
        candidate.slot not in round.working and \
        retries.begin(round, judged, judged.ruling.reason)
