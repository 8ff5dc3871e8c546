"""Builds a Snapshot from the journal: reads state tables and the newest events, not all of them.

Every change of state but a worker's progress is recorded with an event, in one transaction. So
what was read at one event is read again only after a newer event; slots are read every time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Bottleneck
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.best_classes import best_classes
from kopt_tui.snapshot.cache import SnapshotCache, harmless, harmless_lines
from kopt_tui.snapshot.campaign_rows import CampaignRows
from kopt_tui.snapshot.candidate_view import candidate_view
from kopt_tui.snapshot.snapshot import (
    CampaignRow,
    CampaignView,
    CandidateView,
    ClassTable,
    Focus,
    LogLine,
    RoundPoint,
    SlotLine,
    Snapshot,
    StreamLine,
)
from kopt_tui.snapshot.verdict_stream import LINES, CandidateOrigins, stream_lines

LOG_LINES = 400
CONTROLS = 20


class EventState(msgspec.Struct, frozen=True):
    """The part of a campaign's view that only events change, as of one event."""

    key: tuple[str, int] = ("", -1)
    verdicts: tuple[StreamLine, ...] = ()
    chart: tuple[RoundPoint, ...] = ()
    classes: ClassTable | None = None
    bottlenecks: tuple[Bottleneck, ...] = ()


class Builder:
    """Builds snapshots from one Reader."""

    def __init__(self, workspace: Path, reader: Reader, clock: Callable[[], float]) -> None:
        self._workspace = workspace
        self._reader = reader
        self._clock = clock
        self._cache = SnapshotCache()
        self._campaigns = CampaignRows(reader, self._cache)
        self._origins = CandidateOrigins(reader)
        self._state = EventState()
        self._candidate: tuple[tuple[str, str, int], CandidateView] | None = None
        self._log: tuple[LogLine, ...] = ()
        self._log_campaign = ""

    @property
    def incomplete(self) -> bool:
        """Return whether some lines of the last snapshot lack what the next one will have."""
        return self._origins.incomplete

    def snapshot(self, focus: Focus) -> Snapshot:
        """Return the journal as it is now, with the details that `focus` needs."""
        newest = self._reader.last_events(limit=1)
        seq = newest[-1].seq if newest else 0
        rows = self._campaigns.at(seq)
        row = next((row for row in rows if row.id == focus.campaign), None)
        campaigns = dict.fromkeys((focus.campaign, *focus.requested) if row else focus.requested)
        return Snapshot(
            seq=seq, at=self._clock(), campaigns=rows, waiting=self._campaigns.waiting,
            controls=tuple(harmless(control) for campaign in campaigns
                           for control in self._reader.controls(campaign)[-CONTROLS:]),
            view=self._view(row) if row else None,
            candidate=self._candidate_at(seq, row.id, focus.candidate)
            if row and focus.candidate else None,
            report=self._report(row) if row and focus.report else "",
        )

    def _view(self, row: CampaignRow) -> CampaignView:
        log = self._read_log(row.id)
        key = (row.id, log[-1].seq if log else 0)
        if key != self._state.key or self.incomplete:
            self._state = self._read_state(key, row)
        slots = tuple(
            harmless(SlotLine(slot=slot.slot, kind=slot.kind, backend=slot.backend,
                              stage=slot.stage, detail=slot.detail, progress=slot.progress,
                              device=slot.device, hypothesis=slot.hypothesis,
                              bottleneck=slot.bottleneck, candidate=slot.candidate))
            for slot in self._reader.slots(row.id, row.round))
        state = self._state
        return CampaignView(row=row, slots=slots, verdicts=state.verdicts, chart=state.chart,
                            classes=state.classes, bottlenecks=state.bottlenecks, log=log)

    def _read_state(self, key: tuple[str, int], row: CampaignRow) -> EventState:
        self._origins.start()
        verdicts = self._reader.verdicts(row.id, limit=LINES)
        decisions = self._reader.decisions(row.id, limit=LINES * 2)
        return EventState(
            key=key, verdicts=stream_lines(verdicts, decisions, self._origins, self._cache),
            chart=self._campaigns.chart(row.id),
            classes=best_classes(self._reader, self._cache, row, verdicts, decisions),
            bottlenecks=tuple(map(harmless, self._reader.bottlenecks(row.id))),
        )

    def _read_log(self, campaign: str) -> tuple[LogLine, ...]:
        if campaign != self._log_campaign:
            self._log, self._log_campaign = (), campaign
            self._origins.forget()
        fresh = (self._reader.events(campaign=campaign, after=self._log[-1].seq, limit=LOG_LINES)
                 if self._log else [])
        if len(fresh) == LOG_LINES or not self._log:
            self._log, fresh = (), self._reader.last_events(campaign, limit=LOG_LINES)
        for event in fresh:
            self._origins.learn(event)
        lines = (LogLine(event.seq, event.at, event.kind, phrases.event(event))
                 for event in fresh)
        self._log = (*self._log, *lines)[-LOG_LINES:]
        return self._log

    def _report(self, row: CampaignRow) -> str:
        """Return the campaign's report; it reads everything, so it is written once a round."""
        from engine.history.campaign_view import read_with_manifest  # loads what no screen needs
        from engine.records.report.campaign_report import markdown

        def write() -> str:
            campaign = self._reader.campaign(row.id)
            return harmless_lines(markdown(read_with_manifest(self._reader, campaign)).encode()) \
                if campaign else ""
        key = ("report", row.id, row.state, str(row.round), row.best_commit)
        return self._cache.once(key, write)

    def _candidate_at(self, seq: int, campaign: str, candidate: str) -> CandidateView:
        key = (campaign, candidate, seq)
        if self._candidate is None or self._candidate[0] != key:
            self._candidate = key, candidate_view(self._reader, self._cache, self._workspace,
                                                  campaign, candidate, self._campaigns.waiting)
        return self._candidate[1]
