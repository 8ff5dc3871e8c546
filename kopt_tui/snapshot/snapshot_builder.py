"""Builds snapshots from the journal: reads state tables and the newest events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.journal.decoded import plan_event
from engine.journal.read import Reader
from engine.journal.records import Event, Slot
from kopt_tui.snapshot import event_words, phrases
from kopt_tui.snapshot.campaign_rows import CampaignRows
from kopt_tui.snapshot.campaign_verdicts import LINES, best_classes, stream_lines
from kopt_tui.snapshot.candidate_view import candidate_view
from kopt_tui.snapshot.harmless import harmless, harmless_lines
from kopt_tui.snapshot.snapshot import (
    CampaignRow,
    CampaignView,
    CandidateView,
    Focus,
    LogLine,
    SlotRow,
    Snapshot,
)

LOG_LINES = 400
CONTROLS = 20
REPORT_SHARE = 20
"""New events cause a new report only after this many times the time that the last one took."""


class WrittenReport(NamedTuple):
    """A campaign's report, the event at which it was written, and when it is due again."""

    key: tuple[str | int, ...] = ()
    seq: int = 0
    due: float = 0.0
    text: str = ""


class Builder:
    """Builds snapshots from one Reader: reads state tables and the newest events, not all of them.

    Every change of state but a worker's progress is recorded with an event, in one transaction. So
    what was read at one event is read again only after a newer event; slots are read every time.
    """

    def __init__(self, workspace: Path, reader: Reader, clock: Callable[[], float]) -> None:
        self._workspace = workspace
        self._reader = reader
        self._clock = clock
        self._campaigns = CampaignRows(reader, self._clock)
        self._view: CampaignView | None = None
        self._candidate: tuple[tuple[str, str, int], CandidateView] | None = None
        self._report = WrittenReport()

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
            view=self._campaign_view(row) if row else None,
            candidate=self._candidate_view(seq, row.id, focus.candidate)
            if row and focus.candidate else None,
            report=self._written_report(row) if row and focus.report else "",
        )

    def _campaign_view(self, row: CampaignRow) -> CampaignView:
        events = self._reader.last_events(row.id, limit=LOG_LINES)
        known = self._view
        if known is None or known.row.id != row.id or known.log[-1:] != _log(events[-1:]):
            known = self._read_view(row, events)
        works = row.engine.word == "alive"
        self._view = msgspec.structs.replace(known, row=row, slots=tuple(
            self._slot_row(slot if works else phrases.cut_off(slot),
                           works=works and slot.progress != 1.0)
            for slot in self._reader.slots(row.id, row.campaign.round)))
        return self._view

    def _slot_row(self, slot: Slot, *, works: bool) -> SlotRow:
        """Return a slot and its ages, without `updated_at`, which no screen shows."""
        began_at = slot.agent.began_at if slot.agent is not None else None
        return SlotRow(slot=harmless(msgspec.structs.replace(slot, updated_at=0.0)),
                       age=self._age(slot.started_at if works else None),
                       elapsed=self._age(began_at if works else None))

    def _age(self, since: float | None) -> str:
        return "" if since is None else phrases.age(self._clock() - since)

    def _read_view(self, row: CampaignRow, events: Sequence[Event]) -> CampaignView:
        """Return the part of a campaign's view that only events change."""
        verdicts = self._reader.verdicts(row.id, limit=LINES)
        decisions = self._reader.decisions(row.id, limit=LINES * 2)
        ids = {verdict.candidate for verdict in verdicts}
        ids |= {decision.candidate for decision in decisions}
        candidates = {candidate.id: candidate
                      for candidate in self._reader.candidates(row.id, ids=ids)}
        plan = plan_event.last(self._reader, row.id)
        return CampaignView(
            row=row, slots=(), log=_log(events), plan=phrases.clean(str(plan or "")),
            routing=phrases.clean(plan.routing if plan else ""),
            chart=self._campaigns.chart(row.campaign),
            verdicts=stream_lines(verdicts, decisions, candidates),
            classes=best_classes(self._reader, row.campaign, verdicts, decisions),
            bottlenecks=tuple(map(harmless, self._reader.bottlenecks(row.id))))

    def _written_report(self, row: CampaignRow) -> str:
        """Return the campaign's report; events within a round update it only when it is due.

        Writing a report reads the whole campaign and delays everything else on this thread.
        """
        from engine.history.campaign_view import read_with_manifest  # loads what no screen needs
        from engine.records.report.campaign_report import markdown

        key = (row.id, row.status, row.campaign.state, row.campaign.round, row.campaign.best_commit)
        seq = next((event.seq for event in self._reader.last_events(row.id, limit=1)), 0)
        began, last = time.monotonic(), self._report
        campaign = self._reader.campaign(row.id)
        if campaign is None or (key == last.key and (seq == last.seq or began < last.due)):
            return last.text
        view = msgspec.structs.replace(
            read_with_manifest(self._reader, campaign), engine_gone=phrases.without_engine(
                campaign, live=row.engine.word == "alive", answers_only=row.engine.answers_only))
        text = harmless_lines(markdown(view).encode())
        took = time.monotonic() - began
        self._report = WrittenReport(key, seq, began + REPORT_SHARE * took, text)
        return text

    def _candidate_view(self, seq: int, campaign: str, candidate: str) -> CandidateView:
        key = (campaign, candidate, seq)
        if self._candidate is None or self._candidate[0] != key:
            self._candidate = key, candidate_view(self._reader, self._workspace, campaign,
                                                  candidate, self._campaigns.waiting)
        return self._candidate[1]


def _log(events: Sequence[Event]) -> tuple[LogLine, ...]:
    return tuple(LogLine(event.seq, event.at, event.kind, event_words.event(event))
                 for event in events)
