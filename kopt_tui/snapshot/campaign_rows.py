"""Reads the table of campaigns and the candidates that wait for approval."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from engine.history import campaign_view, history, waiting_line
from engine.history.waiting_line import Line
from engine.journal.decoded import patch_review
from engine.journal.liveness import alive, host_name
from engine.journal.model_costs import ModelBill
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.campaign_verdicts import speedup
from kopt_tui.snapshot.harmless import harmless
from kopt_tui.snapshot.snapshot import CampaignRow, EngineState, RoundPoint, WaitingRow

LIVE = ("new", "running", "paused", "waiting")
NO_BILL = ModelBill()


class CampaignRows:
    """The rows of all campaigns as of one event; read again only after a newer event."""

    def __init__(self, reader: Reader, clock: Callable[[], float] = time.time) -> None:
        self._reader, self._clock = reader, clock
        self._seq = -1
        self._rows: tuple[CampaignRow, ...] = ()
        self._trends: dict[str, tuple[float, tuple[float, ...]]] = {}
        """By campaign, when it was last updated, and the best after each of its rounds by then."""
        self.waiting: tuple[WaitingRow, ...] = ()

    def at(self, seq: int) -> tuple[CampaignRow, ...]:
        """Return the rows as of an event, with the state of each engine as it is now."""
        if seq != self._seq or not seq:
            counts, bills = self._reader.waiting_counts(), self._reader.model_bills()
            self._rows = tuple(
                CampaignRow(campaign=harmless(campaign), waiting=counts.get(campaign.id, 0),
                            provisional=waiting_line.provisional(self._reader, campaign.id)
                            if counts.get(campaign.id) else "",
                            trend=self._trend(campaign), cost=bills.get(campaign.id, NO_BILL).short,
                            how_to_go_on=self._how_to_go_on(campaign))
                for campaign in self._reader.campaigns())
            self.waiting = tuple(
                self._waiting(candidate, line) for row in self._rows if row.waiting
                for line in (waiting_line.read(self._reader, row.id),)
                for candidate in self._reader.candidates(row.id, states=("waiting",)))
            self._seq = seq
        if not any(map(_may_be_active, self._rows)):
            return self._rows
        bills = self._reader.model_bills()  # they grow without an event
        return tuple(self._with_engine(row, bills.get(row.id, NO_BILL))
                     if _may_be_active(row) else row for row in self._rows)

    def _with_engine(self, row: CampaignRow, bill: ModelBill) -> CampaignRow:
        """Return a row with its cost, its engine, and how long that has been in its phase."""
        engine = engine_state(self._reader, row.id)
        began = self._reader.newest_event(row.id, "campaign.state") \
            if engine.word == "alive" and row.campaign.phase else None
        return msgspec.structs.replace(
            row, engine=engine, cost=bill.short,
            pauses_soon=row.campaign.state == "running" and engine.word == "alive"
            and self._reader.pauses_soon(row.id),
            phase_age="" if began is None else phrases.age(self._clock() - began.at))

    def chart(self, campaign: Campaign) -> tuple[RoundPoint, ...]:
        """Return the best speedup after each finished round, and after a later keep."""
        ended = [round for round in self._reader.rounds(campaign.id) if round.ended_at is not None]
        points = [] if ended and ended[0].outcome == "baseline" else [
            RoundPoint(0, 1.0, "baseline")]
        past = history.read(self._reader, campaign.id) if any(
            round.outcome == "waiting" for round in ended) else None
        for round in ended:
            best = round.best_speedup or (points[-1].best if points else 1.0)
            outcome = past.outcome_now(round) if past is not None else round.outcome
            points.append(RoundPoint(round.n, best, outcome or "failed"))
        if campaign.speedup not in (None, points[-1].best) and ended:
            keep = next((decision for decision in self._reader.decisions(campaign.id, limit=20)
                         if decision.kind == "keep"), None)
            if keep is not None and keep.at > (ended[-1].ended_at or 0.0):
                points.append(RoundPoint(points[-1].round, campaign.speedup, "kept"))
        return tuple(points)

    def _trend(self, campaign: Campaign) -> tuple[float, ...]:
        updated_at, trend = self._trends.get(campaign.id, (0.0, ()))
        if campaign.state in LIVE or updated_at != campaign.updated_at:
            trend = tuple(point.best for point in self.chart(campaign))
            self._trends[campaign.id] = campaign.updated_at, trend
        return trend

    def _how_to_go_on(self, campaign: Campaign) -> str:
        if campaign.state not in ("waiting", "finished"):
            return ""
        if campaign_view.has_untried_best(self._reader, campaign):
            return phrases.untried_best(campaign)
        return phrases.NOTHING_LEFT if campaign_view.has_nothing_left(self._reader, campaign) \
            else phrases.RAISE_A_LIMIT

    def _waiting(self, candidate: Candidate, line: Line) -> WaitingRow:
        newest = self._reader.newest_verdict(candidate.campaign, candidate.id)
        request = self._reader.newest_decision(candidate.campaign, candidate.id)
        review = patch_review.of_candidate(self._reader, candidate.campaign, candidate.id)
        why = (request.reason if request else "") or candidate.reason
        return harmless(WaitingRow(
            candidate=candidate, why=why, doubts=request.doubts if request else "",
            measured=request.measured if request else why,
            speedup=speedup(newest) if newest else "", verdict=newest.id if newest else None,
            since=request.at if request else candidate.created_at,
            obstacle=waiting_line.obstacle(line, candidate),
            resting=waiting_line.resting(line, candidate.id),
            review=review.brief if review else ""))


def _may_be_active(row: CampaignRow) -> bool:
    """Return whether an engine or, after the end, a host may be at work."""
    return row.campaign.state in LIVE or bool(row.campaign.phase)


def engine_state(reader: Reader, campaign: str) -> EngineState:
    """Return the engine that holds a campaign's lease, and whether it still runs."""
    lease = reader.lease(campaign)
    return EngineState() if lease is None else EngineState(
        word="alive" if alive(lease) else "lost", host=host_name(lease), pid=lease.pid,
        answers_only=lease.answers_only)
