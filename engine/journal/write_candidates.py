"""Writes candidates to the journal: their tasks, states, verdicts and decisions."""

from __future__ import annotations

import time

import msgspec

from engine.journal import database
from engine.journal.leased_connection import LeasedConnection, row_id
from engine.journal.records import (
    Candidate,
    CandidateState,
    CandidateTask,
    DecisionKind,
    DecisionRow,
    VerdictRow,
)
from engine.journal.rows import fetch, insert, values
from engine.task import Task
from harness.verdict import Verdict


class CandidateWriter(LeasedConnection):
    """Writes candidates, their verdicts and the decisions on them."""

    def add_candidate(self, candidate: Candidate, task: Task | None = None, *, form_of: str = "",
                      left_out: str = "", cut: str = "") -> bool:
        """Record a captured patch; return False if the campaign has the same candidate already.

        A candidate comes from a worker's `task`, or is another form of the candidate `form_of`
        and then has the scope of that one. `left_out` and `cut` are fields of Candidate.
        """
        campaign = candidate.campaign
        with self.change(campaign) as connection:
            origin = self.one(Candidate, "WHERE campaign = ? AND id = ?", campaign, form_of)
            scope = task.scope if task is not None else origin.scope if origin is not None else ""
            candidate = msgspec.structs.replace(candidate, form_of=form_of, left_out=left_out,
                                                cut=cut, scope=scope)
            cursor = connection.execute(
                insert(candidate) + " ON CONFLICT DO NOTHING", values(candidate))
            if cursor.rowcount == 0:
                return False
            if task is not None:
                row = CandidateTask(campaign=campaign, candidate=candidate.id, task=task)
                connection.execute(insert(row), values(row))
            origins = {"of": form_of, "left_out": left_out, "cut": cut}
            self.append(campaign, "candidate.captured", candidate.id, {
                "candidate": candidate.id, "slot": candidate.slot, "round": candidate.round,
                "hypothesis": candidate.hypothesis, "bottleneck": candidate.bottleneck,
                **{name: value for name, value in origins.items() if value},
            })
            return True

    def set_candidate_state(self, campaign: str, candidate: str, state: CandidateState, *,
                            commit: str = "", reason: str = "") -> None:
        """Change a candidate's state; empty texts leave the recorded ones as they are.

        Raises ValueError if a kept candidate would become anything else.
        """
        texts = {name: value for name, value in (("commit", commit), ("reason", reason)) if value}
        with self.change(campaign) as connection:
            before = self.one(Candidate, "WHERE campaign = ? AND id = ?", campaign, candidate)
            if before is None:
                raise LookupError(f"campaign {campaign} has no candidate {candidate}")
            if before.state == "kept" and state != "kept":
                raise ValueError(f"candidate {candidate} is kept and cannot become {state}")
            self.update(connection, "candidates", {"state": state, **texts},
                        {"campaign": campaign, "id": candidate})
            self.append(campaign, "candidate.state", candidate, {
                "candidate": candidate, "slot": before.slot, "state": state,
                "before": before.state, "commit": commit, "reason": reason,
            })

    def keeping(self, campaign: str) -> list[Candidate]:
        """Return the candidates whose keep was started and not finished."""
        with database.faults(self.path):
            return fetch(self._connection.get(), Candidate,
                         "WHERE campaign = ? AND state = 'keeping' ORDER BY rowid", (campaign,))

    def add_verdict(self, campaign: str, candidate: str, verdict: Verdict, *, purpose: str,
                    slot: str = "") -> int:
        """Record a verdict and return its id; a verdict that is recorded already keeps its id."""
        row = VerdictRow(
            id=0, campaign=campaign, candidate=candidate, purpose=purpose,
            incumbent_tree=verdict.incumbent_tree, harness_version=verdict.harness_version,
            valid=verdict.valid, correct=verdict.correct, latency_us=verdict.latency_us,
            speedup=verdict.speedup, low=verdict.speedup_low, high=verdict.speedup_high,
            body=msgspec.json.encode(verdict), at=time.time(),
        )
        with self.change(campaign) as connection:
            recorded = self.one(
                VerdictRow, "WHERE campaign = ? AND candidate = ? AND purpose = ?"
                " AND incumbent_tree = ? AND harness_version = ?",
                campaign, candidate, purpose, row.incumbent_tree, row.harness_version,
            )
            if recorded is not None:
                return recorded.id
            number = row_id(connection.execute(insert(row, without="id"),
                                               values(row, without="id")))
            self.append(campaign, "verdict", candidate, {
                "verdict": number, "candidate": candidate,
                "slot": slot or self._slot_of(campaign, candidate), "purpose": purpose,
                "valid": row.valid, "correct": row.correct, "latency_us": row.latency_us,
                "speedup": row.speedup, "low": row.low, "high": row.high,
                "reason": verdict.rejected_reason or "",
            })
            return number

    def add_decision(self, campaign: str, candidate: str, kind: DecisionKind, reason: str, *,
                     round: int, actor: str, verdict: int | None = None, commit: str = "",
                     slot: str = "", is_fault: bool = False) -> int:
        """Record a decision on a candidate, its actor and its reason; return the decision's id."""
        row = DecisionRow(id=0, campaign=campaign, candidate=candidate, verdict=verdict,
                          round=round, kind=kind, reason=reason, actor=actor, commit=commit,
                          at=time.time(), is_fault=is_fault)
        with self.change(campaign) as connection:
            number = row_id(connection.execute(insert(row, without="id"),
                                               values(row, without="id")))
            self.append(campaign, "decision", candidate, {
                "decision": number, "candidate": candidate,
                "slot": slot or self._slot_of(campaign, candidate), "round": round, "kind": kind,
                "reason": reason, "commit": commit, "actor": actor,
            })
            return number

    def _slot_of(self, campaign: str, candidate: str) -> str:
        recorded = self.one(Candidate, "WHERE campaign = ? AND id = ?", campaign, candidate)
        return recorded.slot if recorded else ""
