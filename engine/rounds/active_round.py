"""The state of the round that runs, and its slots.

A slot ends in the transaction that records its candidate's decision. Rounds reuse slot names: a
decision on an earlier round's candidate does not touch the slot of that name in this round.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import round_resume
from engine.history.spending import SpendingMeter
from engine.journal.judged_rows import DecisionKind
from engine.journal.records import Candidate, CandidateState
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.lineage.promote import Keeper
from engine.records.writer import Records
from engine.rounds.pool import Pool
from engine.task import Task
from engine.verify.fleet_device import NoDeviceAvailable
from harness.errors import KoptError

UNJUDGED = "could not be judged: "


@dataclass(frozen=True)
class RoundSlots:
    """Ends the slots of round `n` and records the decisions on their candidates."""

    keeper: Keeper
    n: int

    @property
    def context(self) -> EngineContext:
        return self.keeper.context

    @property
    def _campaign(self) -> str:
        return self.context.setup.id

    def end(self, slot: str, stage: str, detail: str, candidate: str = "") -> None:
        """Record a slot's last stage."""
        with contextlib.suppress(LookupError):  # its round had other slots
            self.context.writer.end_slot(self._campaign, self.n, slot, stage=stage, detail=detail,
                                         candidate=candidate)

    def end_slot_of(self, candidate: Candidate, stage: str, detail: str) -> None:
        """Record the last stage of a candidate's slot, in the round that made it."""
        if round_resume.is_work_of(self.context.reader, candidate, candidate.round):
            notes = round_resume.notes(self.context.reader, candidate)
            RoundSlots(self.keeper, candidate.round).end(
                candidate.slot, stage, f"{detail}; {notes}" if notes else detail, candidate.id)

    def end_repeat(self, task: Task, identity: str) -> None:
        """End a slot whose worker produced a known candidate.

        If the slot's own first try produced that candidate before, an engine was killed in
        between: the slot then ends with the decision on it, as soon as there is one.
        """
        candidate = self.context.reader.candidate(identity, self._campaign)
        if task.repair or task.split or candidate.slot != task.slot or \
                not round_resume.is_work_of(self.context.reader, candidate, self.n):
            self.end(task.slot, "repeat", f"the same change as candidate {identity}", identity)
            return
        for decision in self.context.reader.decisions(self._campaign):
            if (decision.candidate, decision.round) == (identity, self.n):
                self.end(task.slot, decision.kind, decision.reason, identity)
                return

    def tick(self, candidate: Candidate, detail: str) -> None:
        """Show that a candidate is being verified, if its slot is one of this round."""
        if round_resume.is_work_of(self.context.reader, candidate, self.n):
            self.context.tick(candidate.slot, "verifying", detail)

    def move(self, candidate: Candidate, state: CandidateState, stage: str, reason: str) -> None:
        """Change a candidate's state without a decision, and end its slot."""
        with self.context.writer.transaction():
            self.context.writer.set_candidate_state(self._campaign, candidate.id, state,
                                                    reason=reason)
            self.end_slot_of(candidate, stage, reason)

    def refuse(self, entry: CandidateTree, kind: DecisionKind, reason: str, *,
               verdict: int | None = None, stage: str = "", detail: str = "",
               is_fault: bool = False) -> None:
        """Record that a candidate is not kept, and end its slot with `stage` (or the kind)."""
        with self.context.writer.transaction():
            self.keeper.refuse(entry, kind, reason, verdict=verdict, is_fault=is_fault)
            self.end_slot_of(entry.candidate, stage or kind, detail or reason)

    def take_fault(self, entry: CandidateTree, fault: KoptError) -> None:
        """Reject an unjudged candidate; raises the fault if the task or the machine is to blame.

        A transient fault that a second try repeats rejects one candidate; it is raised if the next
        candidate meets it too.
        """
        if isinstance(fault, NoDeviceAvailable) or (
                fault.exit_code in (2, 3)
                and (not fault.may_pass or self._repeats_last_fault(str(fault)))):
            raise fault
        self.refuse_unjudged(entry, str(fault))

    def refuse_unjudged(self, entry: CandidateTree, cause: str) -> None:
        """Reject a candidate without a verdict."""
        self.refuse(entry, "reject", UNJUDGED + cause, stage="failed", detail=cause, is_fault=True)

    def _repeats_last_fault(self, cause: str) -> bool:
        """Return whether the campaign's last decision rejected a candidate for this fault."""
        last = self.context.reader.decisions(self._campaign)[-1:]
        return [decision.reason for decision in last if decision.is_fault] == [UNJUDGED + cause]

    def close(self, judged: JudgedCandidate) -> None:
        """Record the ruling on a candidate that gains nothing, and end its slot."""
        candidate, reason = judged.entry.candidate, judged.ruling.reason
        original = round_resume.recorded(self.context.reader, candidate).form_of
        if original and self.context.reader.candidate(
                original, self._campaign).base_tree != candidate.base_tree:
            reason = f"on {candidate.base_commit[:12]}: {reason}"
        with self.context.writer.transaction():
            self.keeper.close(judged)
            self.end_slot_of(candidate, judged.ruling.kind, reason)

    def defer(self, judged: JudgedCandidate, reason: str) -> None:
        """Record, unless it is known, why a gain is deferred; its candidate stays verified."""
        candidate, reason = judged.entry.candidate, f"deferred: {reason}"
        if self.context.reader.candidate(candidate.id, self._campaign).reason == reason:
            return
        with self.context.writer.transaction():
            self.context.writer.add_decision(
                self._campaign, candidate.id, "runner-up", reason, round=self.n, actor="engine",
                verdict=judged.verdict_id, state="verified")
            failpoint("decided.deferred")
            self.end_slot_of(candidate, "runner-up", reason)


@dataclass(kw_only=True)
class ActiveRound:
    """One round between its start and its result. Only the engine thread changes it."""

    keeper: Keeper
    pool: Pool
    records: Records
    meter: SpendingMeter
    n: int
    base: str
    """The provisional best when the round began, from which every slot starts."""
    closing: bool = False
    """The campaign ends with this round: no worker begins any more."""
    working: set[str] = field(default_factory=set)
    """Slots whose worker runs or is queued."""
    verifying: dict[str, CandidateTree] = field(default_factory=dict)
    """Candidates that wait for a verdict, by id."""
    remeasured: dict[str, Task] = field(default_factory=dict)
    """Submissions that ask for another measurement, by the id of the known candidate."""
    gains: list[JudgedCandidate] = field(default_factory=list)
    """Candidates that may be kept, of this engine and of earlier ones."""
    cut_reason: str = ""
    """Why the workers were ended early."""
    no_device: NoDeviceAvailable | None = None
    """Why the campaign ends once everything in flight has finished."""

    @property
    def context(self) -> EngineContext:
        return self.keeper.context

    @property
    def setup(self) -> Setup:
        return self.context.setup

    @property
    def slots(self) -> RoundSlots:
        return RoundSlots(self.keeper, self.n)

    @property
    def may_retry(self) -> bool:
        """Whether a slot may still retry."""
        return not self.cut_reason and not self.closing

    def drain(self, cause: NoDeviceAvailable) -> None:
        """Begin no further work: a slot has waited for a device as long as a campaign may."""
        self.no_device = self.no_device or cause
        self.pool.drain()
