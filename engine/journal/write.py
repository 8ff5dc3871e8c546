"""Writing the journal: every state change and the event that tells of it, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engine.journal import database
from engine.journal.records import (
    Bottleneck,
    Campaign,
    Candidate,
    CandidateState,
    Control,
    ControlVerb,
    DecisionKind,
    DecisionRow,
    Round,
    RoundOutcome,
    Slot,
    VerdictRow,
)
from engine.journal.rows import Value, fetch, insert, upsert, values
from engine.journal.transact import LeasedConnection, numbered
from harness.errors import InputError
from harness.verdict import Verdict


class Writer(LeasedConnection):
    """What an engine records, one method per change, each with the event that tells of it."""

    # campaigns

    def add_campaign(self, campaign: Campaign) -> None:
        """Record a new campaign; raises InputError if its id is taken."""
        now = time.time()
        made = msgspec.structs.replace(
            campaign, created_at=campaign.created_at or now, updated_at=now
        )
        with self.change(made.id) as connection:
            if self.one(Campaign, "WHERE id = ?", made.id):
                raise InputError(f"campaign {made.id} exists already", where=str(self.path),
                                 fix="give the new one another name")
            connection.execute(insert(made), values(made))
            self.append(made.id, "campaign.created", made.id, {
                "op": made.op, "backend": made.backend, "gpu": made.gpu, "device": made.device,
                "base_commit": made.base_commit,
                "utc_offset_s": time.localtime(made.created_at).tm_gmtoff,
            })

    def set_campaign(self, campaign: str, *, kind: str, payload: Mapping[str, object],
                     **fields: Value) -> None:
        """Change fields of a campaign; `kind` and `payload` make the event that tells of it."""
        unknown = set(fields) - set(Campaign.__struct_fields__)
        if unknown:
            raise TypeError(f"a campaign has no {', '.join(sorted(unknown))}")
        with self.change(campaign) as connection:
            self.update(connection, "campaigns", fields, {"id": campaign})
            self.append(campaign, kind, campaign, payload)

    def tick_campaign(self, campaign: str, *, phase: str) -> None:
        """Overwrite what a campaign is at; progress is no event."""
        with self.change(campaign) as connection:
            self.update(connection, "campaigns", {"phase": phase}, {"id": campaign})

    # rounds and slots

    def start_round(self, round: Round) -> None:
        """Record a round's start; one that was cut short goes on as what it was, on what it began
        with and with what it spent.
        """
        with self.change(round.campaign) as connection:
            before = self.one(Round, "WHERE campaign = ? AND n = ?", round.campaign, round.n)
            if before is not None:
                round = before
            connection.execute(insert(round, verb="INSERT OR REPLACE"), values(round))
            self.update(connection, "campaigns", {"round": round.n}, {"id": round.campaign})
            self.append(round.campaign, "round.start", str(round.n), {
                "round": round.n, "scope": round.scope, "incumbent": round.incumbent,
            })

    def end_round(self, campaign: str, n: int, *, outcome: RoundOutcome, summary: str = "",
                  best_speedup: float | None = None) -> None:
        ended: dict[str, Value] = {
            "ended_at": time.time(), "outcome": outcome, "summary": summary,
            "best_speedup": best_speedup,
        }
        with self.change(campaign) as connection:
            self.update(connection, "rounds", ended, {"campaign": campaign, "n": n})
            self.append(campaign, "round.end", str(n), {
                "round": n, "outcome": outcome, "summary": summary, "best_speedup": best_speedup,
            })

    def spend(self, campaign: str, n: int, *, seconds: float = 0.0, trials: int = 0,
              cost: float = 0.0) -> None:
        """Add to what a round has spent; that is no event."""
        with self.change(campaign) as connection:
            done = connection.execute(
                "UPDATE rounds SET spent_s = spent_s + ?, trials = trials + ?, cost = cost + ?"
                " WHERE campaign = ? AND n = ?", (seconds, trials, cost, campaign, n))
            if done.rowcount == 0:
                raise LookupError(f"{campaign} has no round {n}")

    def put_slots(self, slots: Sequence[Slot]) -> None:
        """Record the slots of one round, with a `slot.start` event for each."""
        for campaign in dict.fromkeys(slot.campaign for slot in slots):
            with self.change(campaign) as connection:
                for slot in (slot for slot in slots if slot.campaign == campaign):
                    placed = msgspec.structs.replace(slot, updated_at=time.time())
                    connection.execute(upsert(placed, "campaign", "round", "slot"), values(placed))
                    self.append(campaign, "slot.start", slot.slot, {
                        "slot": slot.slot, "round": slot.round, "kind": slot.kind,
                        "backend": slot.backend, "hypothesis": slot.hypothesis,
                        "bottleneck": slot.bottleneck,
                    })

    def tick_slot(self, campaign: str, round: int, slot: str, *, stage: str | None = None,
                  detail: str | None = None, progress: float | None = None,
                  candidate: str | None = None, device: str | None = None,
                  started_at: float | None = None) -> None:
        """Overwrite what a slot shows; progress is no event. None leaves a field as it is."""
        shown: dict[str, Value] = {
            "stage": stage, "detail": detail, "progress": progress, "candidate": candidate,
            "device": device, "started_at": started_at,
        }
        given = {name: value for name, value in shown.items() if value is not None}
        with self.change(campaign) as connection:
            self.update(connection, "slots", {**given, "updated_at": time.time()},
                         {"campaign": campaign, "round": round, "slot": slot})

    def end_slot(self, campaign: str, round: int, slot: str, *, stage: str, detail: str = "",
                 candidate: str = "") -> None:
        """Record a slot's last stage, with a `slot.end` event."""
        with self.transaction():
            self.tick_slot(campaign, round, slot, stage=stage, detail=detail, progress=1.0,
                           candidate=candidate or None)
            self.append(campaign, "slot.end", slot, {
                "slot": slot, "round": round, "stage": stage, "detail": detail,
                "candidate": candidate,
            })

    # candidates

    def add_candidate(self, candidate: Candidate, task: Sequence[str] = (), of: str = "",
                      left_out: str = "", cut: str = "") -> bool:
        """Record a captured patch; False if the campaign has had the very same one before.

        It came of a `task`, here in pieces, or is another form `of` a candidate that did. Of the
        change, `left_out` is not in the patch; `cut` is why its worker was not done.
        """
        with self.change(candidate.campaign) as connection:
            done = connection.execute(
                insert(candidate) + " ON CONFLICT DO NOTHING", values(candidate)
            )
            if done.rowcount == 0:
                return False
            self.append(candidate.campaign, "candidate.captured", candidate.id, {
                "candidate": candidate.id, "slot": candidate.slot, "round": candidate.round,
                "hypothesis": candidate.hypothesis, "bottleneck": candidate.bottleneck,
                **({"task": task} if task else {}), **({"of": of} if of else {}),
                **({"left_out": left_out} if left_out else {}), **({"cut": cut} if cut else {}),
            })
            return True

    def set_candidate_state(self, campaign: str, candidate: str, state: CandidateState, *,
                            commit: str = "", reason: str = "") -> None:
        """Move a candidate on; a kept one stays kept. Empty texts leave what was there."""
        told = {name: text for name, text in (("commit", commit), ("reason", reason)) if text}
        with self.change(campaign) as connection:
            before = self.one(Candidate, "WHERE campaign = ? AND id = ?", campaign, candidate)
            if before is None:
                raise LookupError(f"campaign {campaign} has no candidate {candidate}")
            if before.state == "kept" and state != "kept":
                raise ValueError(f"candidate {candidate} is kept and cannot become {state}")
            self.update(connection, "candidates", {"state": state, **told},
                         {"campaign": campaign, "id": candidate})
            self.append(campaign, "candidate.state", candidate, {
                "candidate": candidate, "slot": before.slot, "state": state,
                "before": before.state, "commit": commit, "reason": reason,
            })

    def add_verdict(self, campaign: str, candidate: str, verdict: Verdict, *, purpose: str,
                    slot: str = "") -> int:
        """Record a verdict and return its id; one that is recorded already is not repeated."""
        row = VerdictRow(
            id=0, campaign=campaign, candidate=candidate, purpose=purpose,
            incumbent_tree=verdict.incumbent_tree, harness_version=verdict.harness_version,
            valid=verdict.valid, correct=verdict.correct, latency_us=verdict.latency_us,
            speedup=verdict.speedup, low=verdict.speedup_low, high=verdict.speedup_high,
            body=msgspec.json.encode(verdict), at=time.time(),
        )
        with self.change(campaign) as connection:
            before = self.one(
                VerdictRow, "WHERE campaign = ? AND candidate = ? AND purpose = ?"
                " AND incumbent_tree = ? AND harness_version = ?",
                campaign, candidate, purpose, row.incumbent_tree, row.harness_version,
            )
            if before is not None:
                return before.id
            number = numbered(connection.execute(insert(row, without="id"),
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
                     slot: str = "") -> int:
        """Record what was decided on a candidate, by whom and why; returns the decision's id."""
        row = DecisionRow(id=0, campaign=campaign, candidate=candidate, verdict=verdict,
                          round=round, kind=kind, reason=reason, actor=actor, commit=commit,
                          at=time.time())
        with self.change(campaign) as connection:
            number = numbered(connection.execute(insert(row, without="id"),
                                                values(row, without="id")))
            self.append(campaign, "decision", candidate, {
                "decision": number, "candidate": candidate,
                "slot": slot or self._slot_of(campaign, candidate), "round": round, "kind": kind,
                "reason": reason, "commit": commit, "actor": actor,
            })
            return number

    def keeping(self, campaign: str) -> list[Candidate]:
        """Return the candidates whose keep has begun and not ended."""
        with database.faults(self.path):
            return fetch(self._connection.get(), Candidate,
                         "WHERE campaign = ? AND state = 'keeping' ORDER BY rowid", (campaign,))

    # the rest of the log

    def put_bottlenecks(self, campaign: str, round: int, found: Sequence[Bottleneck]) -> None:
        """Replace a round's bottlenecks."""
        with self.change(campaign) as connection:
            connection.execute("DELETE FROM bottlenecks WHERE campaign = ? AND round = ?",
                               (campaign, round))
            for bottleneck in found:
                connection.execute(insert(bottleneck), values(bottleneck))
            self.append(campaign, "bottlenecks", str(round), {
                "round": round,
                "top": [{"id": b.id, "kernel": b.kernel, "limiter": b.limiter,
                         "metric": b.metric, "value": b.value} for b in found[:5]],
            })

    def event(self, campaign: str, kind: str, ref: str = "", **payload: object) -> int:
        """Append an event that changes no state (gate, warning, log); returns its number."""
        with self.change(campaign):
            return self.append(campaign, kind, ref, payload)

    def open_controls(self, campaign: str) -> list[Control]:
        """Return what people asked and no engine has answered yet, oldest first."""
        with database.faults(self.path):
            return fetch(self._connection.get(), Control,
                         "WHERE campaign = ? AND applied_at IS NULL ORDER BY id", (campaign,))

    def finish_control(self, id: int, outcome: str) -> None:
        """Answer a control; the second answer to the same one is ignored."""
        with self.transaction() as connection:
            control = self.one(Control, "WHERE id = ?", id)
            if control is None or control.applied_at is not None:
                return
            self._check(control.campaign)
            self.update(connection, "controls",
                         {"applied_at": time.time(), "outcome": outcome}, {"id": id})
            self.append(control.campaign, "control.applied", control.candidate, {
                "control": id, "verb": control.verb, "candidate": control.candidate,
                "by": control.by, "outcome": outcome,
            })

    def _slot_of(self, campaign: str, candidate: str) -> str:
        known = self.one(Candidate, "WHERE campaign = ? AND id = ?", campaign, candidate)
        return known.slot if known else ""


def request(workspace: Path, campaign: str, verb: ControlVerb, *, by: str, candidate: str = "",
            expected_base: str = "", expected_verdict: int | None = None) -> int:
    """Ask something of a campaign's engine, from any process; returns the control's id.

    `expected_base` and `expected_verdict` say what the person saw, so that an answer to something
    else is not applied. Raises InputError if there is no such campaign.
    """
    control = Control(id=0, campaign=campaign, verb=verb, candidate=candidate,
                      expected_base=expected_base, expected_verdict=expected_verdict, by=by,
                      at=time.time())
    writer = Writer(workspace)
    try:
        with writer.transaction() as connection:
            if writer.one(Campaign, "WHERE id = ?", campaign) is None:
                raise InputError(f"no campaign {campaign!r}", where=str(workspace),
                                 fix="`kopt status` lists them")
            number = numbered(connection.execute(insert(control, without="id"),
                                                values(control, without="id")))
            writer.append(campaign, "control.requested", candidate, {
                "control": number, "verb": verb, "candidate": candidate, "by": by,
            })
            return number
    finally:
        writer.close()
