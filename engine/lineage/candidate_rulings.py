"""Verdicts on candidates are recorded, and ruled on by a campaign's policy."""

from __future__ import annotations

import msgspec

from engine.context import EngineContext
from engine.history import round_resume, waiting_line
from engine.journal.decoded.recorded import verdict_of
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.judge.judge import Policy, asks_once, rule
from engine.repository.patches.same_change import changed_lines
from engine.verify import canary
from engine.verify.verifier import VerdictRequest
from harness.verdict import HARNESS_VERSION, Verdict

AGAIN = "again-"
"""Prefix of the purpose of a verdict that repeats an earlier one on the same candidate."""
OF_CANDIDATE = ("verify", "format", AGAIN)
"""Prefixes of the purposes of verdicts that decide about a candidate."""
REJECTED_BEFORE = "a person has rejected it before"
"""Why a person is asked about a gain that raises no other doubt."""
NO_PROFILER_ANSWER = "answer.no-profiler"
"""The event that a person approved a gain without kernel time; it holds for the campaign."""


class CandidateRulings:
    """Requests verdicts on candidates, records them and rules on them."""

    def __init__(self, context: EngineContext) -> None:
        self.context, self.setup = context, context.setup
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
        if ruling.kind == "keep" and self._was_rejected(entry):
            ruling = msgspec.structs.replace(ruling, kind="ask", doubts=(REJECTED_BEFORE,))
        return JudgedCandidate(entry=entry, verdict=verdict, verdict_id=number, ruling=ruling)

    def _was_rejected(self, entry: CandidateTree) -> bool:
        """Return whether a person has rejected this change, on any base."""
        reader, campaign = self.context.reader, self.setup.id
        rejected = {row.candidate for row in reader.decisions(campaign) if row.is_rejection}
        if not rejected or entry.id in rejected:
            return bool(rejected)
        change = changed_lines(entry.patch.data)
        paths = [self.setup.folder.path / form.patch_path
                 for candidate in reader.candidates(campaign, ids=rejected)
                 for form in reader.forms(candidate)]
        return any(changed_lines(path.read_bytes()) == change for path in paths if path.is_file())

    def _policy_for(self, verdict: Verdict) -> Policy:
        """Return the policy; `has_answer` is set only for a verdict without kernel time."""
        return msgspec.structs.replace(
            self.policy, has_answer=asks_once(verdict) and self._has_answer(),
            is_check_blind=self._is_check_blind())

    def _is_check_blind(self) -> bool:
        """Return whether the benchmark's check passed on a copy that computes nothing."""
        row = self.context.reader.newest_verdict(self.setup.id, canary.EMPTIED)
        return row is not None and canary.is_check_blind(verdict_of(row))

    def _has_answer(self) -> bool:
        """Return whether a person has approved, or is asked about, a gain without kernel time."""
        reader, campaign = self.context.reader, self.setup.id
        return bool(reader.events_of(campaign, NO_PROFILER_ANSWER)) or any(
            member.state == "waiting" and asks_once(verdict_of(row))
            for member in waiting_line.read(reader, campaign)
            if (row := reader.newest_verdict(campaign, member.id)))

    def judged_before(self, entry: CandidateTree) -> JudgedCandidate | None:
        """Return a candidate with its newest verdict that still holds, and the ruling; or None."""
        for row in self.context.reader.verdicts(self.setup.id, candidate=entry.id):
            if row.purpose.startswith(OF_CANDIDATE) and \
                    row.incumbent_tree == entry.candidate.base_tree and \
                    row.harness_version == HARNESS_VERSION:
                return self.record(entry, verdict_of(row), row.purpose)
        return None

    def judge(self, entry: CandidateTree, purpose: str) -> JudgedCandidate:
        """Judge a candidate now and wait for the verdict; a recorded verdict is not repeated."""
        recorded = self.context.recorded(entry.id, purpose, entry.candidate.base_tree)
        verdict = recorded or self.context.verdict(self.job(entry, purpose))
        return self.record(entry, verdict, purpose)
