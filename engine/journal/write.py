"""Writes the journal: every change of state and its event, in one transaction."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.journal.judged_rows import DecisionKind, DecisionRow, VerdictRow, asking
from engine.journal.records import (
    COMMITTED,
    Campaign,
    Candidate,
    CandidateState,
    CandidateTask,
    Control,
    ControlVerb,
)
from engine.journal.rows import Value, store
from engine.journal.write_rounds import RoundWriter
from engine.task import Task
from harness.errors import InputError
from harness.verdict import Verdict


class Writer(RoundWriter):
    """Writes what an engine records: one method per change, each with its event."""

    def add_campaign(self, campaign: Campaign) -> None:
        """Record a new campaign; raises InputError if its id is taken."""
        now = time.time()
        campaign = msgspec.structs.replace(
            campaign, created_at=campaign.created_at or now, updated_at=now)
        with self.change(campaign.id):
            if self.one(Campaign, "WHERE id = ?", campaign.id):
                raise InputError(f"campaign {campaign.id} already exists", where=str(self.path),
                                 fix="give the new campaign another name")
            self.add(campaign)
            self.append(campaign.id, "campaign.created", campaign.id, {
                "op": campaign.op, "backend": campaign.backend, "gpu": campaign.gpu,
                "device": campaign.device, "base_commit": campaign.base_commit,
                "utc_offset_s": time.localtime(campaign.created_at).tm_gmtoff})

    def set_campaign(self, campaign: str, *, kind: str, payload: Mapping[str, object],
                     **fields: Value) -> None:
        """Change fields of a campaign, with an event of `kind` and `payload`."""
        with self.change(campaign) as connection:
            self.update(connection, "campaigns", fields, {"id": campaign})
            self.append(campaign, kind, campaign, payload)

    def tick_campaign(self, campaign: str, *, phase: str) -> None:
        """Overwrite a campaign's phase, without an event."""
        with self.change(campaign) as connection:
            self.update(connection, "campaigns", {"phase": phase}, {"id": campaign})

    def event(self, campaign: str, kind: str, ref: str = "", **payload: object) -> int:
        """Append an event that changes no state (gate, warning, log); return its number."""
        with self.change(campaign):
            return self.append(campaign, kind, ref, payload)

    def add_candidate(self, candidate: Candidate, task: Task | None = None, *, form_of: str = "",
                      left_out: str = "", cut: str = "") -> bool:
        """Record a captured patch; return False if the campaign has the same candidate already.

        A candidate comes from a worker's `task`, or is another form of the candidate `form_of`
        and then has the scope of that one. `left_out` and `cut` are fields of Candidate.
        """
        campaign = candidate.campaign
        with self.change(campaign) as connection:
            origin = self._candidate(campaign, form_of)
            scope = task.scope if task is not None else origin.scope if origin is not None else ""
            candidate = msgspec.structs.replace(candidate, form_of=form_of, left_out=left_out,
                                                cut=cut, scope=scope)
            if not store(connection, candidate, conflict="ON CONFLICT DO NOTHING").rowcount:
                return False
            if task is not None:
                self.add(CandidateTask(campaign=campaign, candidate=candidate.id, task=task))
            origins = {"of": form_of, "left_out": left_out, "cut": cut}
            self.append(campaign, "candidate.captured", candidate.id, {
                "candidate": candidate.id, "slot": candidate.slot, "round": candidate.round,
                "hypothesis": candidate.hypothesis, "bottleneck": candidate.bottleneck,
                **{name: value for name, value in origins.items() if value}})
            return True

    def set_candidate_state(self, campaign: str, candidate: str, state: CandidateState, *,
                            commit: str = "", reason: str = "", base: str = "") -> None:
        """Change a candidate's state and those texts that are not empty.

        Only a candidate on a line of commits has a commit: any other state deletes it. `base` is
        the new base commit: it has the same tree, but other records. Raises ValueError if the
        candidate was kept, LookupError if there is none.
        """
        texts = {name: value for name, value in (
            ("commit", commit), ("reason", reason), ("base_commit", base)) if value}
        if state not in COMMITTED:
            texts["commit"] = ""
        with self.change(campaign) as connection:
            before = self._candidate(campaign, candidate)
            if before is None:
                raise LookupError(f"campaign {campaign} has no candidate {candidate}")
            if before.state == "kept" and state != "kept":
                raise ValueError(f"candidate {candidate} is kept and cannot become {state}")
            self.update(connection, "candidates", {"state": state, **texts},
                        {"campaign": campaign, "id": candidate})
            self.append(campaign, "candidate.state", candidate, {
                "candidate": candidate, "slot": before.slot, "state": state,
                "before": before.state, "commit": commit, "reason": reason})

    def add_verdict(self, campaign: str, candidate: str, verdict: Verdict, *,
                    purpose: str) -> int:
        """Record a verdict and return its id; if it is already recorded, return that id."""
        row = VerdictRow(
            id=0, campaign=campaign, candidate=candidate, purpose=purpose,
            incumbent_tree=verdict.incumbent_tree, harness_version=verdict.harness_version,
            valid=verdict.valid, correct=verdict.correct, latency_us=verdict.latency_us,
            speedup=verdict.speedup, low=verdict.speedup_low, high=verdict.speedup_high,
            body=msgspec.json.encode(verdict), at=time.time())
        with self.change(campaign):
            recorded = self.one(
                VerdictRow, "WHERE campaign = ? AND candidate = ? AND purpose = ?"
                " AND incumbent_tree = ? AND harness_version = ?",
                campaign, candidate, purpose, row.incumbent_tree, row.harness_version)
            if recorded is not None:
                return recorded.id
            number = self.add(row, numbered="id")
            self.append(campaign, "verdict", candidate, {
                "verdict": number, "candidate": candidate,
                "slot": self._slot_of(campaign, candidate), "purpose": purpose,
                "valid": row.valid, "correct": row.correct, "latency_us": row.latency_us,
                "speedup": row.speedup, "low": row.low, "high": row.high,
                "reason": verdict.rejected_reason or ""})
            return number

    def add_decision(self, campaign: str, candidate: str, kind: DecisionKind, reason: str, *,
                     round: int, actor: str, verdict: int | None = None, commit: str = "",
                     is_fault: bool = False, near_gain: float | None = None,
                     is_rejection: bool = False, doubts: str = "",
                     state: CandidateState | None = None, base: str = "") -> int:
        """Record a decision on a candidate, its actor and its reason; return the decision's id.

        With `state` the candidate gets that state, the reason, the commit and the `base`.
        """
        reason = asking(reason, doubts)
        row = DecisionRow(id=0, campaign=campaign, candidate=candidate, verdict=verdict,
                          round=round, kind=kind, reason=reason, actor=actor, commit=commit,
                          at=time.time(), is_fault=is_fault, near_gain=near_gain,
                          is_rejection=is_rejection, doubts=doubts)
        with self.change(campaign):
            number = self.add(row, numbered="id")
            self.append(campaign, "decision", candidate, {
                "decision": number, "candidate": candidate,
                "slot": self._slot_of(campaign, candidate), "round": round, "kind": kind,
                "reason": reason, "commit": commit, "actor": actor})
            if state is not None:
                self.set_candidate_state(campaign, candidate, state, commit=commit, reason=reason,
                                         base=base)
            return number

    def _candidate(self, campaign: str, identity: str) -> Candidate | None:
        return self.one(Candidate, "WHERE campaign = ? AND id = ?", campaign, identity)

    def _slot_of(self, campaign: str, candidate: str) -> str:
        recorded = self._candidate(campaign, candidate)
        return recorded.slot if recorded else ""

    def open_controls(self, campaign: str) -> list[Control]:
        """Return the requests that no engine has answered, oldest first."""
        return self.all(Control, "WHERE campaign = ? AND applied_at IS NULL ORDER BY id", campaign)

    def finish_control(self, id: int, outcome: str) -> None:
        """Answer a request; a second answer to the same request is ignored."""
        with self.transaction() as connection:
            control = self.one(Control, "WHERE id = ?", id)
            if control is None or control.applied_at is not None:
                return
            self.check_lease(control.campaign)
            self.update(connection, "controls",
                        {"applied_at": time.time(), "outcome": outcome}, {"id": id})
            self.append(control.campaign, "control.applied", control.candidate, {
                "control": id, "verb": control.verb, "candidate": control.candidate,
                "by": control.by, "outcome": outcome})


def request(workspace: Path, campaign: str, verb: ControlVerb, *, by: str, candidate: str = "",
            expected_base: str = "", expected_verdict: int | None = None,
            limits: Mapping[str, str] | None = None, reason: str = "") -> int:
    """Send a request to a campaign's engine, from any process; return the control's id.

    `expected_base` and `expected_verdict` are what the person saw: the engine refuses the request
    if they have changed. `limits` are the values to set, by name; `reason` says why a candidate
    is rejected. Raises InputError if there is no such campaign.
    """
    control = Control(id=0, campaign=campaign, verb=verb, candidate=candidate,
                      expected_base=expected_base, expected_verdict=expected_verdict, by=by,
                      at=time.time())
    with contextlib.closing(Writer(workspace)) as writer, writer.transaction():
        if writer.one(Campaign, "WHERE id = ?", campaign) is None:
            raise InputError(f"no campaign {campaign!r}", where=str(workspace),
                             fix="`kopt status` lists them")
        number = writer.add(control, numbered="id")
        writer.append(campaign, "control.requested", candidate, {
            "control": number, "verb": verb, "candidate": candidate, "by": by,
            **({"limits": dict(limits)} if limits else {}),
            **({"reason": reason} if reason else {})})
        return number
