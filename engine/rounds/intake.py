"""From a worker's result to a candidate: record its trials and log, capture its change."""

from __future__ import annotations

from pathlib import Path

from engine.judge import candidate as candidates
from engine.judge.judge import breach
from engine.repository.patches import hygiene
from engine.rounds import retries, verdicts
from engine.rounds.active_round import ActiveRound
from engine.rounds.pool import WorkerFinished
from engine.task import Task
from engine.workers import inbox


def take_work(round: ActiveRound, finished: WorkerFinished) -> None:
    """Record what a worker did and turn its change, if there is one, into a candidate."""
    task = finished.task
    round.working.discard(task.slot)
    round.meter.note(trials=len(finished.report.trials))
    round.records.trials(round.n, task, finished.report.trials, round.context.writer)
    round.records.worker_log(round.n, task.slot)
    _capture(round, finished)
    if task.backend == "inbox":
        _remove_from_inbox(round, Path(task.option))


def _capture(round: ActiveRound, finished: WorkerFinished) -> None:
    """Request a verdict on a worker's change, or end its slot where there is none to judge."""
    task, report = finished.task, finished.report
    if not report.ok:
        if not _start_retry(round, task, report.summary):
            round.slots.end(task.slot, "ended" if round.cut_reason else "failed", report.summary)
        return
    if not finished.change:
        summary = report.summary + _left_out(finished)
        if not _start_retry(round, task, f"no change; {summary}"):
            round.slots.end(task.slot, "failed" if report.cut else "no change", summary)
        return
    entry = candidates.make(round.setup, finished.change, finished.base, round=round.n,
                            slot=task.slot, bottleneck=task.bottleneck,
                            hypothesis=report.hypothesis or task.hypothesis)
    if not round.context.writer.add_candidate(
            entry.candidate, task, left_out=hygiene.describe_dropped(entry.patch.dropped),
            cut=report.cut):
        if not _start_retry(round, task, f"the same change as candidate {entry.id}", entry.id):
            round.slots.end_repeat(task, entry.id)
        return
    if ruling := breach(entry.violations):
        round.slots.refuse(entry, "reject", ruling.reason)
        return
    verdicts.request(round, entry)


def _left_out(finished: WorkerFinished) -> str:
    """Return which files an empty change lost, and why."""
    dropped = finished.change.patch.dropped if finished.change is not None else ()
    if not dropped:
        return ""
    files = hygiene.describe_dropped(dropped) or f"{dropped[0].path} ({dropped[0].reason})"
    return f"; left out {files}"


def _start_retry(round: ActiveRound, task: Task, reason: str, repeat_of: str = "") -> bool:
    """Start another retry after one that produced nothing; return whether one was started.

    Without a device it returns True: the next engine gives the slot its work back.
    """
    if not round.may_retry or not (task.repair or task.split):
        return False
    return round.no_device is not None or retries.begin_next(round, task, reason, repeat_of)


def _remove_from_inbox(round: ActiveRound, path: Path) -> None:
    """Remove a submitted patch from the inbox, now that the journal has its result."""
    try:
        inbox.take(path)
    except OSError as error:
        round.context.writer.event(round.setup.id, "warning", message=(
            f"a patch stays in the inbox: {error.strerror or error}"))
