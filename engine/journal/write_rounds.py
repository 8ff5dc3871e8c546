"""Writes rounds to the journal: their slots, trials and bottlenecks."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from engine.journal.lease import LeasedConnection
from engine.journal.model_costs import ModelCost
from engine.journal.records import Bottleneck, Round, RoundOutcome, Slot, TrialRow
from engine.journal.rows import Value, on_conflict_update, storable, store
from engine.task import AgentProgress, ModelAnswer
from harness.search.trials.trials import Trial


class RoundWriter(LeasedConnection):
    """Writes rounds and what happens in their slots."""

    def start_round(self, round: Round) -> None:
        """Record the start of a round.

        An interrupted round keeps its recorded scope, incumbent and spending.
        """
        with self.change(round.campaign) as connection:
            recorded = self.one(Round, "WHERE campaign = ? AND n = ?", round.campaign, round.n)
            if recorded is None:
                self.add(round)
            else:
                round = recorded
            self.update(connection, "campaigns", {"round": round.n}, {"id": round.campaign})
            self.append(round.campaign, "round.start", str(round.n), {
                "round": round.n, "scope": round.scope, "incumbent": round.incumbent,
            })

    def end_round(self, campaign: str, n: int, *, outcome: RoundOutcome, summary: str = "",
                  best_speedup: float | None = None) -> None:
        fields: dict[str, Value] = {"outcome": outcome, "summary": summary,
                                    "best_speedup": best_speedup}
        with self.change(campaign) as connection:
            self.update(connection, "rounds", {"ended_at": time.time(), **fields},
                        {"campaign": campaign, "n": n})
            self.append(campaign, "round.end", str(n), {"round": n, **fields})

    def spend(self, campaign: str, n: int, *, seconds: float = 0.0, trials: int = 0,
              cost: float = 0.0) -> None:
        """Add to a round's spending, without an event. Raises LookupError without such a round."""
        with self.change(campaign) as connection:
            cursor = connection.execute(
                "UPDATE rounds SET spent_s = spent_s + ?, trials = trials + ?, cost = cost + ?"
                " WHERE campaign = ? AND n = ?", (seconds, trials, cost, campaign, n))
            if cursor.rowcount == 0:
                raise LookupError(f"{campaign} has no round {n}")

    def model_spent(self, campaign: str, answer: ModelAnswer) -> None:
        """Add the cost of a model's answer to that of its attempt, without an event."""
        row = ModelCost(campaign=campaign, round=answer.round, slot=answer.slot,
                        attempt=answer.attempt, model=answer.model, steps=answer.answers,
                        unpriced=answer.answers if answer.cost_usd is None else 0,
                        cost_usd=answer.cost_usd or 0.0,
                        tokens_read=answer.tokens_read, tokens_written=answer.tokens_written)
        added = ("steps", "unpriced", "cost_usd", "tokens_read", "tokens_written")
        with self.change(campaign) as connection:
            store(connection, row,
                  conflict="ON CONFLICT (campaign, round, slot, attempt, model) DO UPDATE SET "
                  + ", ".join(f"{name} = {name} + excluded.{name}" for name in added))

    def put_slots(self, slots: Sequence[Slot]) -> None:
        """Record the slots of one round, with a `slot.start` event for each."""
        with self.transaction() as connection:
            for slot in slots:
                self.check_lease(slot.campaign)
                now = time.time()
                store(connection, msgspec.structs.replace(slot, started_at=now, updated_at=now),
                      conflict=on_conflict_update(Slot, "campaign", "round", "slot"))
                self.append(slot.campaign, "slot.start", slot.slot, {
                    name: getattr(slot, name) for name in (
                        "slot", "round", "kind", "backend", "hypothesis", "bottleneck")})

    def tick_slot(self, campaign: str, round: int, slot: str, *, stage: str | None = None,
                  detail: str | None = None, progress: float | None = None,
                  candidate: str | None = None, agent: AgentProgress | None = None) -> None:
        """Overwrite a slot's progress, without an event; None leaves a field as it is."""
        fields: dict[str, Value] = {"stage": stage, "detail": detail, "progress": progress,
                                    "candidate": candidate, "agent": storable(agent)}
        now = time.time()
        changed = {name: value for name, value in fields.items() if value is not None}
        with self.change(campaign) as connection:
            before = self.one(Slot, "WHERE campaign = ? AND round = ? AND slot = ?", campaign,
                              round, slot)
            if before is not None and stage not in (None, before.stage):
                changed["started_at"] = now
            self.update(connection, "slots", {**changed, "updated_at": now},
                        {"campaign": campaign, "round": round, "slot": slot})

    def end_slot(self, campaign: str, round: int, slot: str, *, stage: str, detail: str = "",
                 candidate: str = "") -> None:
        """Record a slot's last stage, with a `slot.end` event."""
        with self.transaction():
            self.tick_slot(campaign, round, slot, stage=stage, detail=detail, progress=1.0,
                           candidate=candidate or None)
            self.append(campaign, "slot.end", slot, {
                "slot": slot, "round": round, "stage": stage, "detail": detail,
                "candidate": candidate})

    def add_trials(self, campaign: str, round: int, slot: str, trials: Sequence[Trial]) -> None:
        """Record the trials of a slot's search, with one `trials` event that counts them."""
        if not trials:
            return
        now = time.time()
        with self.change(campaign):
            for trial in trials:
                self.add(TrialRow(
                    id=0, campaign=campaign, round=round, slot=slot, number=trial.number,
                    config=trial.config, tag=trial.tag, correctness=trial.correctness,
                    latency_us=trial.latency_us, latency_kind=trial.latency_kind,
                    pct_of_roofline=trial.pct_of_roofline, candidate_id=trial.candidate_id,
                    kernel_id=trial.kernel_id, reason=trial.reason, at=now), numbered="id")
            self.append(campaign, "trials", slot, {"round": round, "count": len(trials)})

    def put_bottlenecks(self, campaign: str, round: int,
                        bottlenecks: Sequence[Bottleneck]) -> None:
        """Replace a round's bottlenecks."""
        with self.change(campaign) as connection:
            connection.execute("DELETE FROM bottlenecks WHERE campaign = ? AND round = ?",
                               (campaign, round))
            for bottleneck in bottlenecks:
                self.add(bottleneck)
            self.append(campaign, "bottlenecks", str(round), {
                "round": round,
                "top": [{"id": b.id, "kernel": b.kernel, "limiter": b.limiter,
                         "metric": b.metric, "value": b.value} for b in bottlenecks[:5]],
            })
