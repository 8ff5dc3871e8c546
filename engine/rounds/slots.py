"""The slots of a round: each ends in one transaction with what was decided on its candidate.

A slot's name is that of slots in other rounds too. What an earlier round's slot brought, whichever
round decides on it, leaves the slot of that name as it is.
"""

from __future__ import annotations

import contextlib

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import round_resume
from engine.journal.records import Candidate, CandidateState, DecisionKind
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.lineage.promote import Keeper
from engine.task import Task


class RoundSlots:
    """Ends the slots of round `n`, and decides on what they brought."""

    def __init__(self, context: EngineContext, keeper: Keeper, n: int) -> None:
        self.context, self.keeper, self.n = context, keeper, n
        self.campaign = context.setup.id

    def end(self, slot: str, stage: str, detail: str, candidate: str = "") -> None:
        """Record a slot's last stage."""
        with contextlib.suppress(LookupError):  # carried over from a round with other slots
            self.context.writer.end_slot(self.campaign, self.n, slot, stage=stage, detail=detail,
                                         candidate=candidate)

    def end_of(self, candidate: Candidate, stage: str, detail: str) -> None:
        """Record the last stage of the slot that a candidate came of, if that is of this round."""
        if round_resume.is_work_of(self.context.reader, candidate, self.n):
            notes = round_resume.notes(self.context.reader, candidate)
            self.end(candidate.slot, stage, f"{detail}; {notes}" if notes else detail,
                     candidate.id)

    def known(self, task: Task, identity: str) -> None:
        """End a slot that has brought a known candidate.

        A first try that has brought it before is one that an engine was killed over: its slot came
        to what was decided on it, or will.
        """
        candidate = self.context.reader.candidate(identity, self.campaign)
        if task.repair or task.split or candidate.slot != task.slot or \
                not round_resume.is_work_of(self.context.reader, candidate, self.n):
            self.end(task.slot, "repeat", f"the same change as candidate {identity}", identity)
            return
        for told in self.context.reader.decisions(self.campaign):
            if (told.candidate, told.round) == (identity, self.n):
                self.end(task.slot, told.kind, told.reason, identity)
                return

    def tick(self, candidate: Candidate, detail: str) -> None:
        """Show that a candidate waits for its verdict, if its slot is of this round."""
        if round_resume.is_work_of(self.context.reader, candidate, self.n):
            self.context.tick(candidate.slot, "verifying", detail)

    def move(self, candidate: Candidate, state: CandidateState, stage: str, reason: str) -> None:
        """Move a candidate on without a decision, and end its slot."""
        with self.context.writer.transaction():
            self.context.writer.set_candidate_state(self.campaign, candidate.id, state,
                                                    reason=reason)
            self.end_of(candidate, stage, reason)

    def refuse(self, entry: CandidateTree, kind: DecisionKind, reason: str, *,
               verdict: int | None = None, actor: str = "engine", stage: str = "",
               detail: str = "") -> None:
        """Record that a candidate is not kept, and end its slot as that, or as `stage`."""
        with self.context.writer.transaction():
            self.keeper.refuse(entry, kind, reason, verdict=verdict, actor=actor)
            self.end_of(entry.candidate, stage or kind, detail or reason)

    def close(self, judged: JudgedCandidate) -> None:
        """Record that what was judged is not kept, and end its slot."""
        reason, moved = judged.ruling.reason, self._moved(judged.entry.candidate)
        with self.context.writer.transaction():
            self.keeper.close(judged)
            self.end_of(judged.entry.candidate, judged.ruling.kind,
                        f"on the new best: {reason}" if moved else reason)

    def ask(self, judged: JudgedCandidate) -> None:
        """Put a candidate to a person; its slot waits."""
        with self.context.writer.transaction():
            self.keeper.ask(judged)
            self.end_of(judged.entry.candidate, "waiting", judged.ruling.reason)

    def stand_back(self, judged: JudgedCandidate, reason: str) -> None:
        """Record, once a round, that a gain stands back; it stays what it is."""
        candidate = judged.entry.candidate
        if candidate.round != self.n or any(
                (told.candidate, told.kind, told.round) == (candidate.id, "runner-up", self.n)
                for told in self.context.reader.decisions(self.campaign)):
            return
        with self.context.writer.transaction():
            self.context.writer.add_decision(
                self.campaign, candidate.id, "runner-up", reason, round=self.n, actor="engine",
                verdict=judged.verdict_id, slot=candidate.slot)
            failpoint("decided.stands-back")
            self.end_of(candidate, "runner-up", reason)

    def _moved(self, candidate: Candidate) -> bool:
        """Tell whether a candidate is an earlier one on another base."""
        of = round_resume.recorded(self.context.reader, candidate).form_of
        return bool(of) and self.context.reader.candidate(
            of, self.campaign).base_commit != candidate.base_commit
