"""Reads the table of campaigns and the candidates that wait for approval."""

from __future__ import annotations

from functools import partial

import msgspec

from engine.journal.liveness import alive, host_name
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, VerdictRow
from kopt_tui.snapshot.cache import SnapshotCache, harmless
from kopt_tui.snapshot.snapshot import CampaignRow, EngineState, RoundPoint, Speedup, WaitingRow

LIVE = ("new", "running", "paused", "waiting")
RECENT_DECISIONS = 300


class CampaignRows:
    """The rows of all campaigns as of one event; read again only after a newer event."""

    def __init__(self, reader: Reader, cache: SnapshotCache) -> None:
        self._reader = reader
        self._cache = cache
        self._seq = -1
        self._rows: tuple[CampaignRow, ...] = ()
        self.waiting: tuple[WaitingRow, ...] = ()

    def at(self, seq: int) -> tuple[CampaignRow, ...]:
        """Return the rows at an event, with the state of each engine as it is now."""
        if seq != self._seq or not seq:
            counts = self._reader.waiting_counts()
            self._rows = tuple(self._row(campaign, counts.get(campaign.id, 0))
                               for campaign in self._reader.campaigns())
            self.waiting = tuple(
                self._waiting(candidate) for row in self._rows if row.waiting
                for candidate in self._reader.candidates(row.id, states=("waiting",)))
            self._seq = seq
        return tuple(msgspec.structs.replace(row, engine=self._engine(row)) for row in self._rows)

    def chart(self, campaign: str) -> tuple[RoundPoint, ...]:
        """Return the best speedup after each finished round."""
        ended = [round for round in self._reader.rounds(campaign) if round.ended_at is not None]
        points = [] if ended and ended[0].outcome == "baseline" else [
            RoundPoint(0, 1.0, "baseline")]
        for round in ended:
            best = round.best_speedup or (points[-1].best if points else 1.0)
            points.append(RoundPoint(round.n, best, round.outcome or "failed"))
        return tuple(points)

    def _row(self, campaign: Campaign, waiting: int) -> CampaignRow:
        read_chart = partial(self.chart, campaign.id)
        points = read_chart() if campaign.state in LIVE else self._cache.once(
            ("chart", campaign.id, str(campaign.updated_at)), read_chart)
        return harmless(CampaignRow(
            id=campaign.id, target=campaign.op, lang=campaign.lang or campaign.backend,
            device=campaign.device or campaign.gpu, state=campaign.state, phase=campaign.phase,
            reason=campaign.outcome, round=campaign.round, rounds_max=campaign.rounds_max,
            waiting=waiting, updated_at=campaign.updated_at, created_at=campaign.created_at,
            best=speedup(campaign.speedup, campaign.speedup_low, campaign.speedup_high),
            trend=tuple(point.best for point in points), project=campaign.project,
            base_commit=campaign.base_commit, best_commit=campaign.best_commit,
        ))

    def _engine(self, row: CampaignRow) -> EngineState:
        lease = self._reader.lease(row.id) if row.state in LIVE else None
        return EngineState() if lease is None else EngineState(
            word="alive" if alive(lease) else "lost", host=host_name(lease), pid=lease.pid)

    def _waiting(self, candidate: Candidate) -> WaitingRow:
        newest = next(iter(self._reader.verdicts(
            candidate.campaign, candidate=candidate.id, limit=1)), None)
        request = next((decision for decision in self._reader.decisions(
            candidate.campaign, limit=RECENT_DECISIONS) if decision.candidate == candidate.id),
            None)
        return harmless(WaitingRow(
            campaign=candidate.campaign, candidate=candidate.id, slot=candidate.slot,
            round=candidate.round, hypothesis=candidate.hypothesis,
            bottleneck=candidate.bottleneck,
            why=(request.reason if request else "") or candidate.reason,
            speedup=speedup_of(newest) if newest else None,
            verdict=newest.id if newest else None, base_commit=candidate.base_commit,
            since=request.at if request else candidate.created_at,
        ))


def speedup(value: float | None, low: float | None, high: float | None) -> Speedup | None:
    """Return a recorded speedup, None where nothing was compared."""
    return None if value is None else Speedup(value, low, high)


def speedup_of(row: VerdictRow) -> Speedup | None:
    """Return the speedup of a recorded verdict, None where nothing was compared."""
    return speedup(row.speedup, row.low, row.high)
