"""Rules on candidates and promotes winners: format command, commit, new best."""

from __future__ import annotations

from itertools import chain
from typing import Protocol

import msgspec

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import history, round_resume
from engine.journal.records import DecisionKind
from engine.judge import candidate as candidates
from engine.judge import commit_message
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.judge.judge import Policy, lacks_profiler, rule
from engine.lineage.commit import KeepReason, commit_candidate
from engine.verify.verifier import VerdictRequest
from harness.errors import InputError, Refused
from harness.verdict import Verdict

NO_PROFILER_ANSWER = "answer.no-profiler"
"""The event of a person who approved a gain without kernel time, for the whole campaign."""


class Refuse(Protocol):
    """Records that a candidate is not kept, and why."""

    def __call__(self, entry: CandidateTree, kind: DecisionKind, reason: str, *,
                 verdict: int | None = None, actor: str = "engine") -> None: ...


class Keeper:
    """Judges candidates and keeps winners, for rounds and approvals."""

    def __init__(self, context: EngineContext) -> None:
        self.context = context
        self.setup = context.setup
        manifest = context.setup.manifest
        self.policy = Policy(approval=manifest.approval, margin=manifest.decision.margin,
                             tolerance=manifest.decision.tolerance)

    def job(self, entry: CandidateTree, purpose: str) -> VerdictRequest:
        """Return the request for a verdict on a candidate against its own base."""
        is_current = round_resume.is_work_of(self.context.reader, entry.candidate,
                                             self.context.round)
        return VerdictRequest(
            purpose=purpose, candidate=entry.id, slot=entry.candidate.slot if is_current else "",
            candidate_tree=entry.tree, incumbent_tree=entry.candidate.base_tree,
            alpha=self.context.alpha())

    def record(self, entry: CandidateTree, verdict: Verdict, purpose: str) -> JudgedCandidate:
        """Record a verdict and rule on it."""
        number = self.context.writer.add_verdict(self.setup.id, entry.id, verdict, purpose=purpose)
        ruling = rule(verdict, self._policy_for(verdict), violations=entry.violations)
        return JudgedCandidate(entry=entry, verdict=verdict, verdict_id=number, ruling=ruling)

    def _policy_for(self, verdict: Verdict) -> Policy:
        """Return the policy, with the campaign's answer to a verdict without kernel time."""
        return msgspec.structs.replace(self.policy, has_answer=True) \
            if lacks_profiler(verdict) and self._has_answer() else self.policy

    def _has_answer(self) -> bool:
        return bool(self.context.reader.events_of(self.setup.id, NO_PROFILER_ANSWER))

    def _note_answer(self, judged: JudgedCandidate, actor: str) -> None:
        """Record that a person's approval of a gain without kernel time holds for the campaign."""
        if actor != "engine" and lacks_profiler(judged.verdict) and not self._has_answer():
            self.context.writer.event(
                self.setup.id, NO_PROFILER_ANSWER, judged.entry.id,
                message=f"approved by {actor}: kernel time is not available here, and the "
                        "benchmark's own times decide for the rest of this campaign")

    def judged_before(self, entry: CandidateTree) -> JudgedCandidate | None:
        """Return a candidate with its recorded verdict and the ruling on it, None without one."""
        verdict = self.context.recorded(entry.id, "verify", entry.candidate.base_tree)
        return None if verdict is None else self.record(entry, verdict, "verify")

    def judge(self, entry: CandidateTree, purpose: str) -> JudgedCandidate:
        """Judge a candidate now and wait for the verdict; a recorded verdict is not repeated."""
        recorded = self.context.recorded(entry.id, purpose, entry.candidate.base_tree)
        verdict = recorded or self.context.verdict(self.job(entry, purpose))
        return self.record(entry, verdict, purpose)

    def close(self, judged: JudgedCandidate, *, actor: str = "engine") -> None:
        """Record that a candidate is not kept, and why."""
        kind = judged.ruling.kind
        if kind in ("keep", "ask"):
            raise ValueError(f"candidate {judged.entry.id} is not closed by a {kind}")
        self.refuse(judged.entry, kind, judged.ruling.reason, verdict=judged.verdict_id,
                    actor=actor)

    def refuse(self, entry: CandidateTree, kind: DecisionKind, reason: str, *,
               verdict: int | None = None, actor: str = "engine",
               is_fault: bool = False) -> None:
        writer, campaign = self.context.writer, self.setup.id
        with writer.transaction():
            writer.add_decision(campaign, entry.id, kind, reason, round=self.context.round,
                                actor=actor, verdict=verdict, is_fault=is_fault)
            writer.set_candidate_state(campaign, entry.id, "closed", reason=reason)
        failpoint(f"decided.{kind}")

    def ask(self, judged: JudgedCandidate) -> None:
        """Ask a person to approve a candidate; the campaign goes on meanwhile."""
        reason = f"{judged.ruling.reason} — asks because {'; '.join(judged.ruling.doubts)}"
        writer, campaign, entry = self.context.writer, self.setup.id, judged.entry
        with writer.transaction():
            writer.add_decision(campaign, entry.id, "ask", reason, round=self.context.round,
                                actor="engine", verdict=judged.verdict_id)
            writer.set_candidate_state(campaign, entry.id, "waiting", reason=reason)
        failpoint("decided.ask")

    def known_as(self, identity: str) -> str:
        """Describe the state of a candidate that was found before."""
        candidate = self.context.reader.candidate(identity, self.setup.id)
        gone = history.undone(history.rollbacks(self.context.reader, self.setup.id))
        state = "rolled back" if candidate.commit in gone else candidate.state
        return f"known as {identity}, which is {state}"

    def kept_before(self, identity: str) -> bool:
        """Return whether a candidate was kept: it cannot be kept again, even after a rollback."""
        return self.context.reader.candidate(identity, self.setup.id).state == "kept"

    def keep(self, judged: JudgedCandidate, *, actor: str = "engine",
             refuse: Refuse | None = None) -> bool:
        """Make a candidate the best if it survives the format command; else `refuse` records it."""
        final = self._formatted(judged, refuse or self.refuse)
        if final is None:
            return False
        if final.entry.id != judged.entry.id:
            self.refuse(judged.entry, "runner-up", f"kept in its formatted form {final.entry.id}",
                        verdict=judged.verdict_id, actor=actor)
        reason = KeepReason(message=self._message(final), reason=final.ruling.reason, actor=actor,
                            round=self.context.round, verdict=final.verdict_id)
        try:
            kept = commit_candidate(self.context.writer, self.setup.repo, final.entry.candidate,
                                    final.entry.tree, reason)
        except Refused as refusal:  # another program moved the branch: the campaign goes on
            self.context.writer.event(self.setup.id, "warning", final.entry.id,
                                      message=str(refusal))
            return False
        self._note_answer(judged, actor)
        if kept.refusal:
            self.context.writer.event(self.setup.id, "log", final.entry.id, message=kept.refusal)
        return True

    def _formatted(self, judged: JudgedCandidate, refuse: Refuse) -> JudgedCandidate | None:
        """Run the format command on a candidate's tree and judge the result if it differs."""
        command = self.setup.manifest.format_command
        if not command:
            return judged
        entry = judged.entry
        try:
            formatted = self.context.run_in_thread(lambda: candidates.formatted(
                self.setup, entry, command, round=self.context.round, stop=self.context.stop))
        except InputError as error:
            refuse(entry, "reject", f"the format command: {error.what}", verdict=judged.verdict_id)
            return None
        if formatted.tree == entry.tree:
            return judged
        if not self.context.writer.add_candidate(formatted.candidate, form_of=entry.id) and \
                self.kept_before(formatted.id):
            refuse(entry, "reject", f"its formatted form is {self.known_as(formatted.id)}",
                   verdict=judged.verdict_id)
            return None
        confirmed = self.judge(formatted, "format")
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
        return commit_message.message(
            self.setup.manifest.target_op, entry.candidate, judged.verdict, changed,
            list(chain(*self.context.reader.surveys(self.setup.id).values())))


def ask_next(keeper: Keeper) -> None:
    """Ask about the best deferred gain at a run's end; gains on an outdated base are closed."""
    context, setup = keeper.context, keeper.setup
    best = setup.repo.best
    waiting = context.reader.candidates(setup.id, states=("waiting",))
    deferred: list[JudgedCandidate] = []
    for candidate in context.reader.candidates(setup.id, states=("verified",)):
        try:
            entry = candidates.load(setup, candidate)
        except InputError as error:
            context.writer.set_candidate_state(setup.id, candidate.id, "closed", reason=str(error))
            continue
        judged = keeper.judged_before(entry) if candidate.base_commit == best else None
        if judged is None:
            keeper.refuse(entry, "runner-up", "another was kept, and the campaign has ended")
        else:
            deferred.append(judged)
    if deferred and not any(candidate.base_commit == best for candidate in waiting):
        keeper.ask(max(deferred, key=lambda judged: judged.verdict.speedup or 0.0))
