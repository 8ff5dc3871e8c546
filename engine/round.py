"""One round: plan → work → verify → judge → keep."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from engine import candidates, disk, history
from engine.budget import Meter
from engine.candidates import Entry
from engine.desk import Desk
from engine.fleet import NoIdleGpu
from engine.journal.records import Candidate, Round, RoundOutcome, Slot
from engine.judge import breach
from engine.keeper import Judged, Keeper
from engine.pool import Finished, Pool
from engine.records.write import Records
from engine.second_tries import SecondTries
from engine.verifier import Verified
from engine.workers import inbox
from engine.workers.base import Task
from harness.errors import InputError, KoptError

UNENDED = ("queued", "starting", "working", "searching", "rewriting", "reading", "waiting")
"""Stages of a slot whose worker is at it."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a round came to, as the journal tells it."""

    outcome: RoundOutcome
    summary: str


class RoundRun:
    """Runs one round to its end. Raises Stopped when the campaign is to end meanwhile."""

    def __init__(self, desk: Desk, keeper: Keeper, pool: Pool, records: Records, n: int,
                 between: Callable[[], None], meter: Meter, late: Callable[[int], str]) -> None:
        """`late` says of so many candidates in flight why their verdicts leave no more time."""
        self.desk, self.keeper, self.pool, self.records, self.n = desk, keeper, pool, records, n
        self._between, self._meter, self._late = between, meter, late
        self.setup = desk.setup
        self._base = ""
        self._cut = ""
        self._failed = False
        self._working: set[str] = set()
        self._verifying: dict[str, Entry] = {}
        self._seconds = SecondTries(desk, keeper, pool, meter)
        self._judged: list[Judged] = []
        self._earlier: list[Judged] = []

    def run(self, tasks: Sequence[Task], carried: Sequence[Candidate]) -> Result:
        """Fill the slots, judge what comes out, keep the best; `carried` were left by a crash."""
        self._base = self.setup.lineage.best
        self.desk.round = self.n
        self._open(tasks)
        try:
            self._carry(carried)
            self.pool.start(tasks, self._base)
            while self._working or self._verifying:
                self._handle(self.desk.wait())
                self._between()
                if self._working and (reason := self._late(self._in_flight)):
                    self._end_workers(reason)
        finally:
            self.pool.stop()
        self._choose()
        return self._end()

    @property
    def _in_flight(self) -> int:
        return len(self._working) + len(self._verifying)

    def _end_workers(self, reason: str) -> None:
        """End the workers ahead of the deadline; what they leave is judged like any other."""
        self._cut = reason
        self.desk.aside(self.pool.stop)
        while not self.desk.messages.empty():
            self._handle(self.desk.wait())
        for slot in sorted(self._working):
            self._end_slot(slot, "not begun", reason)
        self._working.clear()

    def _open(self, tasks: Sequence[Task]) -> None:
        writer, campaign = self.desk.writer, self.setup.id
        self._make_room(len(tasks))
        writer.start_round(Round(campaign=campaign, n=self.n, scope="global", incumbent=self._base,
                                 started_at=time.time()))
        writer.put_slots([Slot(campaign=campaign, round=self.n, slot=t.slot, kind=t.kind,
                               backend=t.backend, hypothesis=t.hypothesis,
                               bottleneck=t.bottleneck, device=self.setup.device.id,
                               started_at=time.time()) for t in tasks])
        self._working = {task.slot for task in tasks}
        for slot in self.desk.reader.slots(campaign, self.n):
            if slot.slot not in self._working and slot.stage in UNENDED and not slot.candidate:
                self._end_slot(slot.slot, "ended", "its engine was cut short")
        self._meter.note(cost=sum(map(self._seconds.cost_of, tasks)))

    def _make_room(self, slots: int) -> None:
        """See that the round fits on the disk. Raises EnvironmentFault."""
        lineage, most = self.setup.lineage, self.setup.manifest.budget.disk_gb
        self.setup.tree(lineage.base)
        if told := disk.make_room(
                self.setup.folder.path, base_tree=lineage.tree_of(lineage.base), slots=slots,
                cards=len(self.setup.devices), keep={lineage.tree_of(self._base)},
                most_bytes=None if most is None else int(most * 1e9)):
            self.desk.writer.event(self.setup.id, "log", message=told)

    def _carry(self, carried: Sequence[Candidate]) -> None:
        """Take up candidates that an earlier engine captured and did not decide on."""
        for candidate in carried:
            try:
                entry = candidates.load(self.setup, candidate)
            except InputError as error:
                self.desk.writer.set_candidate_state(self.setup.id, candidate.id, "closed",
                                                     reason=str(error))
                continue
            if ruling := breach(entry.violations):
                self.keeper.refuse(entry, "reject", ruling.reason)
                continue
            verdict = self.desk.recorded(entry.id, "verify", candidate.base_tree)
            if verdict is None:
                self._submit(entry)
                continue
            judged = self.keeper.record(entry, verdict, "verify")
            if judged.good:
                self._earlier.append(judged)
            else:
                self.keeper.close(judged)

    def _handle(self, message: object) -> None:
        if isinstance(message, NoIdleGpu):  # a slot has waited for as long as a campaign does
            raise message
        if isinstance(message, Finished):
            self._working.discard(message.task.slot)
            self._meter.note(trials=len(message.report.trials))
            self.records.trials(self.n, message.task, message.report.trials, self.desk.writer)
            self.records.worker_log(self.n, message.task.slot)
            self._captured(message)
            if message.task.backend == "inbox":
                self._take(Path(message.task.option))
        elif isinstance(message, Verified):
            entry = self._verifying.pop(message.job.candidate, None)
            if entry is None:
                return
            if message.fault is not None:
                self._unjudged(entry, message.fault)
            elif message.verdict is not None:
                self._rule(self.keeper.record(entry, message.verdict, "verify"))

    def _take(self, path: Path) -> None:
        """Put a handed-in patch away, now that the journal knows what became of it."""
        try:
            inbox.take(path)
        except OSError as error:
            self.desk.writer.event(self.setup.id, "warning", message=(
                f"a patch stays in the inbox: {error.strerror or error}"))

    def _captured(self, finished: Finished) -> None:
        task, report = finished.task, finished.report
        if not report.ok:
            self._failed = self._failed or not self._cut
            self._end_slot(task.slot, "ended" if self._cut else "failed", report.summary)
            return
        if not finished.patch:
            dropped = finished.patch.dropped if finished.patch is not None else ()
            left = f"; left out {dropped[0].path} ({dropped[0].reason})" if dropped else ""
            self._end_slot(task.slot, "no change", report.summary + left)
            return
        try:
            entry = candidates.make(self.setup, finished.patch, self._base, round=self.n,
                                    slot=task.slot, bottleneck=task.bottleneck,
                                    hypothesis=report.hypothesis or task.hypothesis)
        except InputError as error:
            self._end_slot(task.slot, "failed", str(error))
            return
        if not self.desk.writer.add_candidate(entry.candidate):
            self._end_slot(task.slot, "repeat", f"the same change as candidate {entry.id}",
                           entry.id)
            return
        self.records.candidate(self.n, entry)
        self._seconds.task_of[entry.id] = task
        if ruling := breach(entry.violations):
            self.keeper.refuse(entry, "reject", ruling.reason)
            self._end_slot(task.slot, "reject", ruling.reason, entry.id)
            return
        self._submit(entry)

    def _submit(self, entry: Entry) -> None:
        """Have a verdict made, unless the candidate's own files cannot even be written."""
        try:
            self.desk.aside(lambda: self.setup.tree(entry.tree))
        except (InputError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            reason = f"its files cannot be written: {error}"
            self.keeper.refuse(entry, "reject", reason)
            self._end_slot(entry.candidate.slot, "reject", reason, entry.id)
            return
        self._verifying[entry.id] = entry
        self.desk.tick(entry.candidate.slot, "verifying", "waits for the device")
        self.desk.verifier.submit(self.keeper.job(entry, "verify"))

    def _unjudged(self, entry: Entry, fault: KoptError) -> None:
        """The harness could not answer. A bad task or machine ends the campaign, with one line."""
        if fault.exit_code in (2, 3) or isinstance(fault, NoIdleGpu):
            raise fault
        self.keeper.refuse(entry, "reject", f"could not be judged: {fault}")
        self._end_slot(entry.candidate.slot, "failed", str(fault), entry.id)

    def _rule(self, judged: Judged) -> None:
        entry, ruling = judged.entry, judged.ruling
        self._judged.append(judged)
        self.records.verdict(self.n, judged)
        if judged.good:
            self.desk.writer.set_candidate_state(self.setup.id, entry.id, "verified",
                                                 reason=ruling.reason)
            self._end_slot(entry.candidate.slot, "verified", ruling.reason, entry.id)
        elif not self._cut and (again := self._seconds.begin(judged, self._base)):
            self._working.add(again.slot)
        else:
            self.keeper.close(judged)
            self._end_slot(entry.candidate.slot, ruling.kind, ruling.reason, entry.id)

    def _choose(self) -> None:
        """Best of N wins; every other verified gain is tried again on the new best."""
        lineage = self.setup.lineage
        pending = [j for j in self._judged + self._earlier if j.good]
        while pending:
            pending.sort(key=lambda j: j.verdict.speedup or 0.0, reverse=True)
            judged = pending.pop(0)
            if judged.entry.candidate.base_commit != lineage.best:
                again = self._retry(judged)
                if again is not None:
                    pending.append(again)
            elif judged.ruling.kind == "ask":
                self._ask(judged)
            elif self.keeper.keep(judged):
                self._end_slot(judged.entry.candidate.slot, "kept", judged.ruling.reason,
                               judged.entry.id)

    def _ask(self, judged: Judged) -> None:
        """Put the best to a person; what is not better stands back until that is decided."""
        candidate = judged.entry.candidate
        ahead = self._ahead(judged)
        if not ahead:
            self.keeper.ask(judged)
            self._end_slot(candidate.slot, "waiting", judged.ruling.reason, candidate.id)
        elif candidate.round == self.n and judged not in self._earlier:
            reason = f"stands back while {ahead} waits for a person"
            self.desk.writer.add_decision(
                self.setup.id, candidate.id, "runner-up", reason, round=self.n, actor="engine",
                verdict=judged.verdict_id, slot=candidate.slot)
            self._end_slot(candidate.slot, "runner-up", reason, candidate.id)

    def _ahead(self, judged: Judged) -> str:
        """Return the waiting candidate on the same base that is at least as fast, or ""."""
        for other in self.desk.reader.candidates(self.setup.id, states=("waiting",)):
            if other.base_commit == judged.entry.candidate.base_commit:
                found = self.desk.recorded(other.id, "verify", other.base_tree)
                if found is not None and (found.speedup or 0.0) >= (judged.verdict.speedup or 0.0):
                    return other.id
        return ""

    def _retry(self, judged: Judged) -> Judged | None:
        """Re-try a runner-up on the new best; returns it judged if its gain still stands."""
        best, entry = self.setup.lineage.best, judged.entry
        try:
            moved = candidates.rebase(self.setup, entry, best, self.n)
        except InputError:
            self.keeper.refuse(entry, "runner-up", "conflicts with what was kept",
                               verdict=judged.verdict_id)
            self._end_slot(entry.candidate.slot, "runner-up", "conflicts with what was kept")
            return None
        if moved is None or not self.desk.writer.add_candidate(moved.candidate):
            self.keeper.refuse(entry, "runner-up", "the new best has this change already",
                               verdict=judged.verdict_id)
            return None
        self.keeper.refuse(entry, "runner-up", f"tried again on the new best as {moved.id}",
                           verdict=judged.verdict_id)
        self.desk.tick(entry.candidate.slot, "verifying", "again, on the new best")
        try:
            again = self.keeper.judge(moved, "verify")
        except KoptError as fault:
            self._unjudged(moved, fault)
            return None
        self.records.verdict(self.n, again)
        if again.good:
            self.desk.writer.set_candidate_state(self.setup.id, moved.id, "verified",
                                                 reason=again.ruling.reason)
            return again
        self.keeper.close(again)
        self._end_slot(entry.candidate.slot, again.ruling.kind,
                       f"on the new best: {again.ruling.reason}", moved.id)
        return None

    def _end(self) -> Result:
        """Say what the round came to: what the journal has of it, from whichever engine."""
        past = history.read(self.desk.reader, self.setup.id)
        outcome, fresh = past.outcome(self.n, failed=self._failed), past.fresh(self.n)
        kinds = Counter(d.kind for d in past.decisions if d.round == self.n)
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        summary = f"{fresh} candidates: {counted or 'none judged'}"
        if outcome == "tie" and not fresh and not kinds:
            summary = "no slot found anything better"
        return Result(outcome=outcome, summary=f"{summary}; ended early: {self._cut}"
                      if self._cut else summary)

    def _end_slot(self, slot: str, stage: str, detail: str, candidate: str = "") -> None:
        with contextlib.suppress(LookupError):  # carried over from a round with other slots
            self.desk.writer.end_slot(self.setup.id, self.n, slot, stage=stage, detail=detail,
                                      candidate=candidate)
