"""Promotes winners: format command, commit, new best or waiting line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Protocol

import msgspec

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import kept_commits
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionKind, asking
from engine.journal.read import Reader
from engine.journal.records import COMMITTED, Candidate, CandidateState
from engine.judge import candidate as candidates
from engine.judge import commit_message
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.judge.judge import asks_once
from engine.lineage import provisional
from engine.lineage.candidate_rulings import NO_PROFILER_ANSWER, CandidateRulings
from engine.lineage.commit import KeepReason, KeptCommit, commit_candidate
from harness.errors import InputError, Refused


class Refuse(Protocol):
    """Records that a candidate is not kept, and why."""

    def __call__(self, entry: CandidateTree, kind: DecisionKind, reason: str, *,
                 verdict: int | None = None) -> None: ...


class RecordsOfKeep(Protocol):
    """Returns the files that a candidate's commit contains besides its code, by path."""

    def __call__(self, reader: Reader, candidate: Candidate, tree: str, *, reason: str,
                 verdict: int | None) -> Mapping[str, bytes]: ...


class Keeper:
    """Keeps winners and closes other candidates, for rounds and approvals.

    Without `records`, commits contain only the code.
    """

    def __init__(self, context: EngineContext, records: RecordsOfKeep | None = None) -> None:
        self._records = records
        self.context = context
        self.setup = context.setup
        self.rulings = CandidateRulings(context)

    def approve(self, candidate: Candidate, actor: str) -> list[KeptCommit]:
        """Keep a waiting candidate that `actor` approved, and the provisional gains on top."""
        reader, campaign = self.context.reader, self.setup.id
        kept = provisional.approve(self.context.writer, reader, self.setup.repo, candidate, actor)
        row = reader.newest_verdict(campaign, candidate.id)
        if row is not None and asks_once(verdict_of(row)) \
                and not reader.events_of(campaign, NO_PROFILER_ANSWER):
            self.context.writer.event(
                campaign, NO_PROFILER_ANSWER, candidate.id,
                message=f"approved by {actor}: kernel time is not available here, and the "
                        "benchmark's own times decide for the rest of this campaign")
        return kept

    def close(self, judged: JudgedCandidate) -> None:
        """Close a candidate whose ruling is neither to keep it nor to ask a person."""
        kind = judged.ruling.kind
        if kind in ("keep", "ask"):
            raise ValueError(f"candidate {judged.entry.id} is not closed by a {kind}")
        self.refuse(judged.entry, kind, judged.ruling.reason, verdict=judged.verdict_id,
                    near_gain=judged.ruling.near_gain)

    def refuse(self, entry: CandidateTree, kind: DecisionKind, reason: str, *,
               verdict: int | None = None, is_fault: bool = False,
               near_gain: float | None = None) -> None:
        """Record that a candidate is not kept, and why."""
        self.context.writer.add_decision(
            self.setup.id, entry.id, kind, reason, round=self.context.round, actor="engine",
            verdict=verdict, is_fault=is_fault, near_gain=near_gain, state="closed")
        failpoint(f"decided.{kind}")

    def known_as(self, identity: str) -> str:
        """Return in words under which id a candidate is known, and its state."""
        candidate = self.context.reader.candidate(identity, self.setup.id)
        undone = kept_commits.undone(kept_commits.rollbacks(self.context.reader, self.setup.id))
        state = "rolled back" if candidate.commit in undone else candidate.state
        return f"known as {identity}, which is {state}"

    def place(self, judged: JudgedCandidate, *, refuse: Refuse | None = None) -> CandidateState:
        """Commit a gain on the provisional best, if it survives the format command.

        It is kept if it raises no doubts and no approval is pending, else it joins the waiting
        line. Returns its state:
        `kept`, `waiting`, `provisional`; `closed` if `refuse` recorded why not.
        """
        final = self._formatted(judged, refuse or self.refuse)
        if final is None:
            return "closed"
        doubts = judged.ruling.doubts or final.ruling.doubts
        if final.entry.id != judged.entry.id:
            self.refuse(judged.entry, "runner-up",
                        f"continues as its formatted form {final.entry.id}",
                        verdict=judged.verdict_id)
        reason = KeepReason(message=self._message(final), reason=final.ruling.reason,
                            doubts="; ".join(doubts), actor="engine",
                            round=final.entry.candidate.round, verdict=final.verdict_id)
        if self._records is not None:
            reason = msgspec.structs.replace(reason, records=self._records(
                self.context.reader, final.entry.candidate, final.entry.tree,
                reason=asking(reason.reason, reason.doubts), verdict=reason.verdict))
        return self._commit(final.entry, reason, asks=bool(doubts))

    def _commit(self, entry: CandidateTree, reason: KeepReason, *, asks: bool) -> CandidateState:
        writer, repo, candidate = self.context.writer, self.setup.repo, entry.candidate
        try:
            if asks or repo.tip != repo.best:
                provisional.add(writer, repo, candidate, entry.tree, reason, asks=asks)
                return "waiting" if asks else "provisional"
            kept = commit_candidate(writer, repo, candidate, entry.tree, reason)
        except Refused as refusal:  # the branch was moved meanwhile: the campaign goes on
            writer.event(self.setup.id, "warning", candidate.id, message=str(refusal))
            return self.context.reader.candidate(candidate.id, self.setup.id).state
        if kept.refusal:
            writer.event(self.setup.id, "log", candidate.id, message=kept.refusal)
        return "kept"

    def _formatted(self, judged: JudgedCandidate, refuse: Refuse) -> JudgedCandidate | None:
        """Run the format command on a candidate's tree and judge the result if it differs."""
        command = self.setup.manifest.format_command
        if not command:
            return judged
        entry = judged.entry
        try:
            formatted = self.context.run_in_thread(lambda: candidates.formatted(
                self.setup, entry, command, stop=self.context.stop))
        except InputError as error:
            refuse(entry, "reject", f"the format command: {error.what}", verdict=judged.verdict_id)
            return None
        if formatted.tree == entry.tree:
            return judged
        if not self.context.writer.add_candidate(formatted.candidate, form_of=entry.id) and \
                self.context.reader.candidate(formatted.id, self.setup.id).state in COMMITTED:
            refuse(entry, "reject", f"its formatted form is {self.known_as(formatted.id)}",
                   verdict=judged.verdict_id)
            return None
        confirmed = self.rulings.judge(formatted, "format")
        if confirmed.is_gain:
            return confirmed
        with self.context.writer.transaction():
            self.close(confirmed)
            refuse(entry, "reject", "its gain did not survive the format command",
                   verdict=judged.verdict_id)
        return None

    def _message(self, judged: JudgedCandidate) -> str:
        entry, repo = judged.entry, self.setup.repo

        def read(commit: str) -> commit_message.Read:
            return lambda path: repo.read(commit, path).decode(errors="replace")

        changed = commit_message.changed(entry.patch, self.setup.target.language,
                                         read(entry.candidate.base_commit), read(entry.tree))
        message = commit_message.message(
            self.setup.manifest.target_op, entry.candidate, judged.verdict, changed,
            list(chain(*self.context.reader.surveys(self.setup.id).values())))
        return f"{message}\nRun: {self.setup.id}"
