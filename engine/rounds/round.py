"""One round: plan → work → verify → judge → keep."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from engine.context import EngineContext
from engine.history import history, round_resume
from engine.history.round_resume import RoundProgress
from engine.history.spending import SpendingMeter
from engine.journal.records import Candidate, Round, RoundOutcome, Slot
from engine.judge import candidate as candidates
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.judge.judge import breach
from engine.lineage.promote import Keeper
from engine.records.writer import Records
from engine.repository.patches import hygiene
from engine.rounds import disk_space
from engine.rounds.best_of_n import Choice
from engine.rounds.pool import Pool, TaskSkipped, WorkerFinished
from engine.rounds.retries import Retries
from engine.rounds.slots import RoundSlots
from engine.task import Task, scope_of
from engine.verify.fleet import FailsOnHealthyDevices, NoDeviceAvailable
from engine.verify.verifier import VerdictResult
from engine.workers import inbox
from harness.errors import InputError, KoptError

UNENDED = ("queued", "starting", "working", "searching", "rewriting", "reading", "waiting")
"""Stages of a slot whose worker is at it."""


class RoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a round came to, as the journal tells it."""

    outcome: RoundOutcome
    summary: str


class RoundRun:
    """Runs one round to its end. Raises CampaignStopped when the campaign is to end meanwhile."""

    def __init__(self, context: EngineContext, keeper: Keeper, pool: Pool, records: Records, n: int,
                 between: Callable[[], None], meter: SpendingMeter,
                 late: Callable[[int, int], str]) -> None:
        """`late` says of so many candidates in flight, and of so many gains beside them, why their
        verdicts leave no more time.
        """
        self.context, self.keeper, self.n = context, keeper, n
        self.pool, self.records = pool, records
        self._between, self._meter, self._late = between, meter, late
        self.setup = context.setup
        self._base = ""
        self._cut = ""
        self._closing = False
        self._no_gpu: NoDeviceAvailable | None = None
        """Why the campaign ends once what is in flight has come to its end."""
        self._working: set[str] = set()
        self._verifying: dict[str, CandidateTree] = {}
        self._slots = RoundSlots(context, keeper, n)
        self._seconds = Retries(context, keeper, pool, meter)
        self._judged: list[JudgedCandidate] = []
        self._earlier: list[JudgedCandidate] = []

    def run(self, tasks: Sequence[Task], carried: Sequence[Candidate], *,
            closing: bool = False) -> RoundResult:
        """Fill the slots, judge what comes out, keep the best; `carried` were left by a crash.

        Where the campaign is `closing`, no worker is to begin any more.
        """
        self._base, self._closing = self.setup.repo.best, closing
        self.context.round = self.n
        begun = round_resume.progress_of(self.context.reader, self.setup.id, self.n)
        tasks = [task for task in tasks if task.slot not in
                 {candidate.slot for candidate in begun.again}]
        self._open(tasks, begun)
        try:
            self.pool.start(tasks, self._base)
            for candidate in begun.again:
                self._go_on(candidate)
            self._carry(carried)
            while self._working or self._verifying:
                self._handle(self.context.wait())
                self._look_between()
                if self._working and (reason := self._late(self._in_flight, self._gains)):
                    self._end_workers(reason)
        finally:
            self.pool.stop()
        if self._no_gpu is not None:
            raise self._no_gpu
        Choice(self.context, self.keeper, self.records, self._slots, self._unjudged).choose(
            self._judged + self._earlier)
        return self._end()

    def _look_between(self) -> None:
        """Carry out approvals, unless there is no card for them either."""
        if self._no_gpu is None:
            try:
                self._between()
            except NoDeviceAvailable as error:
                self._drain(error)

    @property
    def _in_flight(self) -> int:
        return len(self._working) + len(self._verifying)

    @property
    def _gains(self) -> int:
        return sum(judged.good for judged in self._judged + self._earlier)

    def _end_workers(self, reason: str) -> None:
        """End the workers ahead of the deadline; what they leave is judged like any other."""
        self._cut = reason
        self.context.aside(self.pool.stop)
        while not self.context.messages.empty():
            self._handle(self.context.wait())
        for slot in sorted(self._working):
            self._slots.end(slot, "not begun", reason)
        self._working.clear()

    def _open(self, tasks: Sequence[Task], begun: RoundProgress) -> None:
        writer, campaign = self.context.writer, self.setup.id
        self._make_room(len(tasks))
        writer.start_round(Round(campaign=campaign, n=self.n, scope=scope_of(tasks),
                                 incumbent=self._base, started_at=time.time()))
        writer.put_slots([Slot(campaign=campaign, round=self.n, slot=t.slot, kind=t.kind,
                               backend=t.backend, hypothesis=t.hypothesis,
                               bottleneck=t.bottleneck, device=self.setup.device.id,
                               scope=t.scope, option=t.option, knobs=t.knobs, idea=t.idea,
                               limiter=t.limiter, config_class=t.config_class,
                               started_at=time.time()) for t in tasks])
        self._working = {task.slot for task in tasks}
        for slot in self.context.reader.slots(campaign, self.n):
            if slot.slot not in self._working | begun.held and slot.stage in UNENDED \
                    and not slot.candidate:
                self._slots.end(slot.slot, "ended", "its engine was cut short")
        self._meter.note(cost=sum(map(self._seconds.cost_of, tasks)))

    def _make_room(self, slots: int) -> None:
        """See that the round fits on the disk. Raises EnvironmentFault."""
        repo, most = self.setup.repo, self.setup.manifest.budget.disk_gb
        self.setup.tree(repo.base)
        if told := disk_space.make_room(
                self.setup.folder.path, base_tree=repo.tree_of(repo.base), slots=slots,
                cards=len(self.setup.devices), keep={repo.tree_of(self._base)},
                most_bytes=None if most is None else int(most * 1e9)):
            self.context.writer.event(self.setup.id, "log", message=told)

    def _go_on(self, candidate: Candidate) -> None:
        """Take up the second try of a candidate that an earlier engine was killed over."""
        try:
            again = "the campaign ends" if self._closing else self._seconds.go_on(candidate)
        except InputError as error:
            again = str(error)
        if isinstance(again, Task):
            self._working.add(again.slot)
        else:
            self._slots.end(candidate.slot, "ended", f"not tried again: {again}", candidate.id)

    def _carry(self, carried: Sequence[Candidate]) -> None:
        """Take up candidates that an earlier engine captured and did not decide on."""
        for candidate in carried:
            try:
                entry = candidates.load(self.setup, candidate)
            except InputError as error:
                self._slots.move(candidate, "closed", "failed", str(error))
                continue
            if ruling := breach(entry.violations):
                self._slots.refuse(entry, "reject", ruling.reason)
                continue
            verdict = self.context.recorded(entry.id, "verify", candidate.base_tree)
            if verdict is None:
                self._submit(entry)
                continue
            judged = self.keeper.record(entry, verdict, "verify")
            if candidate.round == self.n and candidate.state == "captured":
                self._rule(judged)
            elif judged.good:
                self._earlier.append(judged)
            else:
                self._not_good(judged)

    def _handle(self, message: object) -> None:
        if isinstance(message, TaskSkipped):  # the next engine begins it
            self._working.discard(message.task.slot)
            if message.why is not None:
                self._drain(message.why)
        elif isinstance(message, WorkerFinished):
            self._working.discard(message.task.slot)
            self._meter.note(trials=len(message.report.trials))
            self.records.trials(self.n, message.task, message.report.trials, self.context.writer)
            self.records.worker_log(self.n, message.task.slot)
            self._captured(message)
            if message.task.backend == "inbox":
                self._take(Path(message.task.option))
        elif isinstance(message, VerdictResult):
            entry = self._verifying.pop(message.job.candidate, None)
            if entry is None:
                return
            if isinstance(message.fault, FailsOnHealthyDevices):  # else it would end every engine
                self._slots.refuse(entry, "reject", f"could not be judged: {message.fault.what}",
                                   stage="failed", detail=str(message.fault.what))
            elif isinstance(message.fault, NoDeviceAvailable):  # the next engine has it judged
                self._drain(message.fault)
            elif message.fault is not None:
                self._unjudged(entry, message.fault)
            elif message.verdict is not None:
                self._rule(self.keeper.record(entry, message.verdict, "verify"))

    def _drain(self, why: NoDeviceAvailable) -> None:
        """Begin nothing any more: a slot has waited for a card for as long as a campaign does."""
        self._no_gpu = self._no_gpu or why
        self.pool.drain()

    def _take(self, path: Path) -> None:
        """Put a handed-in patch away, now that the journal knows what became of it."""
        try:
            inbox.take(path)
        except OSError as error:
            self.context.writer.event(self.setup.id, "warning", message=(
                f"a patch stays in the inbox: {error.strerror or error}"))

    def _captured(self, finished: WorkerFinished) -> None:
        task, report = finished.task, finished.report
        if not report.ok:
            if not self._goes_on(task, report.summary):
                self._slots.end(task.slot, "ended" if self._cut else "failed", report.summary)
            return
        if not finished.change:
            dropped = finished.change.patch.dropped if finished.change is not None else ()
            told = hygiene.describe_dropped(dropped) or (
                f"{dropped[0].path} ({dropped[0].reason})" if dropped else "")
            left = f"; left out {told}" if told else ""
            if not self._goes_on(task, f"no change; {report.summary}{left}"):
                self._slots.end(task.slot, "failed" if report.cut else "no change",
                                report.summary + left)
            return
        entry = candidates.make(self.setup, finished.change, finished.base, round=self.n,
                                slot=task.slot, bottleneck=task.bottleneck,
                                hypothesis=report.hypothesis or task.hypothesis)
        if not self.context.writer.add_candidate(
                entry.candidate, task,
                left_out=hygiene.describe_dropped(entry.patch.dropped), cut=report.cut):
            if not self._goes_on(task, f"the same change as candidate {entry.id}", entry.id):
                self._slots.known(task, entry.id)
            return
        if ruling := breach(entry.violations):
            self._slots.refuse(entry, "reject", ruling.reason)
            return
        self._submit(entry)

    def _goes_on(self, task: Task, why: str, known: str = "") -> bool:
        """Tell whether a slot whose second try brought nothing has another one, or will have."""
        if self._cut or self._closing or not (task.repair or task.split):
            return False
        if self._no_gpu is not None:
            return True  # the next engine gives its slot the work back
        if again := self._seconds.next(task, why, known):
            self._working.add(again.slot)
        return again is not None

    def _submit(self, entry: CandidateTree) -> None:
        """Have a verdict made, unless the candidate's own files cannot even be written."""
        try:
            self.context.aside(lambda: self.setup.tree(entry.tree))
        except (InputError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            self._slots.refuse(entry, "reject", f"its files cannot be written: {error}")
            return
        self._verifying[entry.id] = entry
        self._slots.tick(entry.candidate, "waits for the device")
        self.context.verifier.submit(self.keeper.job(entry, "verify"))

    def _unjudged(self, entry: CandidateTree, fault: KoptError) -> None:
        """The harness could not answer. A bad task or machine ends the campaign, with one line."""
        if fault.exit_code in (2, 3) or isinstance(fault, NoDeviceAvailable):
            raise fault
        self._slots.refuse(entry, "reject", f"could not be judged: {fault}", stage="failed",
                           detail=str(fault))

    def _rule(self, judged: JudgedCandidate) -> None:
        entry, ruling = judged.entry, judged.ruling
        self._judged.append(judged)
        self.records.verdict(self.n, judged)
        if judged.good:
            self._slots.move(entry.candidate, "verified", "verified", ruling.reason)
        else:
            self._not_good(judged)

    def _not_good(self, judged: JudgedCandidate) -> None:
        """Give a slot its work back, if that may help, or close what it brought."""
        candidate = judged.entry.candidate
        if self._no_gpu is not None and candidate.round == self.n:
            return  # its verdict is recorded: the next engine gives its slot the work back, or not
        may_begin = not self._cut and not self._closing and candidate.round == self.n \
            and candidate.slot not in self._working
        if may_begin and (again := self._seconds.begin(judged)):
            self._working.add(again.slot)
        else:
            self._slots.close(judged)

    def _end(self) -> RoundResult:
        """Say what the round came to: what the journal has of it, from whichever engine."""
        decision, slots = self.setup.manifest.decision, self.context.reader.slots(
            self.setup.id, self.n)
        past = history.read(self.context.reader, self.setup.id, decision.score, decision.margin)
        failed = any(slot.stage == "failed" and not slot.candidate for slot in slots)
        outcome, fresh = past.outcome(self.n, failed=failed), past.fresh(self.n)
        kinds = Counter(d.kind for d in past.decisions if d.round == self.n)
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        summary = f"{fresh} candidates: {counted or 'none judged'}"
        if outcome == "tie" and not fresh and not kinds:
            summary = "no slot found anything better"
        return RoundResult(outcome=outcome, summary=f"{summary}; ended early: {self._cut}"
                      if self._cut else summary)
