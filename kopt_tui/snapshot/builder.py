"""From the journal to a Snapshot: reads state tables and the newest events, never a history.

Every change of state but a worker's progress has its event in the same transaction. So what was
read at one event number is read again only when there is a newer event; slots are read each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from engine.journal.lease import alive, host_name
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Campaign, Candidate, DecisionRow, Event, VerdictRow
from harness.errors import InputError
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.cache import SnapshotCache, harmless, harmless_lines
from kopt_tui.snapshot.candidate_view import candidate_view
from kopt_tui.snapshot.snapshot import (
    CampaignRow,
    CampaignView,
    CandidateView,
    ClassTable,
    EngineState,
    Focus,
    LogLine,
    RoundPoint,
    SlotLine,
    Snapshot,
    Speedup,
    StreamLine,
    WaitingRow,
)

STREAM = 80
LOG = 400
LOOKUPS = 3
ORIGINS = 2000
LIVE = ("new", "running", "paused", "waiting")


class Home(msgspec.Struct, frozen=True):
    """All campaigns and all waiting candidates at one event."""

    seq: int = -1
    rows: tuple[CampaignRow, ...] = ()
    waiting: tuple[WaitingRow, ...] = ()


class EventState(msgspec.Struct, frozen=True):
    """What only events change in a campaign, at one event."""

    key: tuple[str, int] = ("", -1)
    verdicts: tuple[StreamLine, ...] = ()
    chart: tuple[RoundPoint, ...] = ()
    classes: ClassTable | None = None
    bottlenecks: tuple[Bottleneck, ...] = ()


class Builder:
    """Builds snapshots from one Reader."""

    def __init__(self, workspace: Path, reader: Reader, clock: Callable[[], float]) -> None:
        self.workspace = workspace
        self.reader = reader
        self.clock = clock
        self.incomplete = False
        """Some lines of the last snapshot lack what the next one will have."""
        self._memory = SnapshotCache()
        self._home = Home()
        self._judged = EventState()
        self._candidate: tuple[tuple[str, str, int], CandidateView] | None = None
        self._log: tuple[LogLine, ...] = ()
        self._log_of = ""
        self._origins: dict[str, tuple[str, str]] = {}
        self._lookups = 0

    def snapshot(self, focus: Focus) -> Snapshot:
        """Return the journal as it is now, with the details that `focus` asks for."""
        newest = self.reader.last_events(limit=1)
        seq = newest[-1].seq if newest else 0
        if seq != self._home.seq or not seq:
            self._home = self._read_home(seq)
        waiting = self._home.waiting
        rows = tuple(msgspec.structs.replace(row, engine=self._engine(row))
                     for row in self._home.rows)
        row = next((row for row in rows if row.id == focus.campaign), None)
        asked = dict.fromkeys((focus.campaign, *focus.asked) if row else focus.asked)
        return Snapshot(
            seq=seq, at=self.clock(), campaigns=rows, waiting=waiting,
            controls=tuple(harmless(c) for id in asked for c in self.reader.controls(id)[-20:]),
            view=self._view(row) if row else None,
            candidate=self._candidate_at(seq, row.id, focus.candidate) if row and focus.candidate
            else None,
            report=self._report(row) if row and focus.report else "",
        )

    # The table of campaigns.

    def _read_home(self, seq: int) -> Home:
        counts = self.reader.waiting_counts()
        rows = tuple(self._row(one, counts.get(one.id, 0)) for one in self.reader.campaigns())
        waiting = tuple(self._waiting(one) for row in rows if row.waiting
                        for one in self.reader.candidates(row.id, states=("waiting",)))
        return Home(seq, rows, waiting)

    def _row(self, one: Campaign, waiting: int) -> CampaignRow:
        chart = partial(self._chart, one.id)
        points = chart() if one.state in LIVE else self._memory.once(
            ("chart", one.id, str(one.updated_at)), chart)
        return harmless(CampaignRow(
            id=one.id, target=one.op, lang=one.lang or one.backend, device=one.device or one.gpu,
            state=one.state, phase=one.phase, reason=one.outcome, round=one.round,
            rounds_max=one.rounds_max, waiting=waiting, updated_at=one.updated_at,
            best=_speedup(one.speedup, one.speedup_low, one.speedup_high),
            created_at=one.created_at, trend=tuple(point.best for point in points),
            project=one.project, base_commit=one.base_commit, best_commit=one.best_commit,
        ))

    def _engine(self, row: CampaignRow) -> EngineState:
        lease = self.reader.lease(row.id) if row.state in LIVE else None
        return EngineState() if lease is None else EngineState(
            word="alive" if alive(lease) else "lost", host=host_name(lease), pid=lease.pid)

    def _chart(self, campaign: str) -> tuple[RoundPoint, ...]:
        ended = [one for one in self.reader.rounds(campaign) if one.ended_at is not None]
        points = [] if ended and ended[0].outcome == "baseline" else [
            RoundPoint(0, 1.0, "baseline")]
        for one in ended:
            best = one.best_speedup or (points[-1].best if points else 1.0)
            points.append(RoundPoint(one.n, best, one.outcome or "failed"))
        return tuple(points)

    def _waiting(self, one: Candidate) -> WaitingRow:
        newest = next(iter(self.reader.verdicts(one.campaign, candidate=one.id, limit=1)), None)
        asked = next((d for d in self.reader.decisions(one.campaign, limit=300)
                      if d.candidate == one.id), None)
        return harmless(WaitingRow(
            campaign=one.campaign, candidate=one.id, slot=one.slot, round=one.round,
            hypothesis=one.hypothesis, bottleneck=one.bottleneck,
            why=(asked.reason if asked else "") or one.reason,
            speedup=_speedup_of(newest), verdict=newest.id if newest else None,
            base_commit=one.base_commit, since=asked.at if asked else one.created_at,
        ))

    # One campaign.

    def _view(self, row: CampaignRow) -> CampaignView:
        log = self._events(row.id)
        key = (row.id, log[-1].seq if log else 0)
        if key != self._judged.key or self.incomplete:
            self._judged = self._read_judged(key, row)
        slots = (SlotLine(slot=s.slot, kind=s.kind, backend=s.backend, stage=s.stage,
                          detail=s.detail, progress=s.progress, device=s.device,
                          hypothesis=s.hypothesis, bottleneck=s.bottleneck, candidate=s.candidate)
                 for s in self.reader.slots(row.id, row.round))
        found = self._judged
        return CampaignView(row=row, slots=tuple(map(harmless, slots)), verdicts=found.verdicts,
                            chart=found.chart, classes=found.classes,
                            bottlenecks=found.bottlenecks, log=log)

    def _read_judged(self, key: tuple[str, int], row: CampaignRow) -> EventState:
        self._lookups, self.incomplete = LOOKUPS, False
        verdicts = self.reader.verdicts(row.id, limit=STREAM)
        decisions = self.reader.decisions(row.id, limit=STREAM * 2)
        return EventState(
            key=key, verdicts=self._stream(row.id, verdicts, decisions), chart=self._chart(row.id),
            classes=self._classes(row, verdicts, decisions),
            bottlenecks=tuple(harmless(b) for b in self.reader.bottlenecks(row.id)),
        )

    def _stream(self, campaign: str, verdicts: list[VerdictRow],
                decisions: list[DecisionRow]) -> tuple[StreamLine, ...]:
        newest: dict[int, DecisionRow] = {}
        for one in decisions:
            if one.verdict is not None:
                newest.setdefault(one.verdict, one)
        lines = [self._verdict_line(one, newest.get(one.id)) for one in verdicts
                 if one.purpose != "canary"]  # which is to fail
        lines += [self._decision_line(one) for one in decisions if one.verdict is None]
        return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:STREAM])

    def _verdict_line(self, one: VerdictRow, decision: DecisionRow | None) -> StreamLine:
        slot, hypothesis = self._origin(one.campaign, one.candidate)
        measured = one.purpose if one.purpose in ("headline", "baseline", "e2e") else "measured"
        outcome = (measured if one.correct else "incorrect") if one.valid else "invalid"
        if decision is not None:
            outcome, reason = decision.kind, decision.reason
        else:
            body = None if one.valid and one.correct else self._memory.body(one)
            reason = (body.rejected_reason if body else "") or ""
        return harmless(StreamLine(
            key=f"v{one.id}", at=max(one.at, decision.at if decision else 0.0), slot=slot,
            candidate=one.candidate, purpose=one.purpose, outcome=outcome, reason=reason,
            speedup=_speedup_of(one), latency_us=one.latency_us, hypothesis=hypothesis,
        ))

    def _decision_line(self, one: DecisionRow) -> StreamLine:
        slot, hypothesis = self._origin(one.campaign, one.candidate)
        return harmless(StreamLine(
            key=f"d{one.id}", at=one.at, slot=slot, candidate=one.candidate, purpose="",
            outcome=one.kind, speedup=None, latency_us=None, reason=one.reason,
            hypothesis=hypothesis,
        ))

    def _origin(self, campaign: str, candidate: str) -> tuple[str, str]:
        """Return slot and hypothesis of a candidate, from recent events or else looked up.

        A look-up reads a whole index, so only some are made at a time.
        """
        known = self._origins.get(candidate)
        if known is not None:
            return known
        if self._lookups == 0:
            self.incomplete = True
            return "", ""
        self._lookups -= 1
        try:
            one = self.reader.candidate(candidate, campaign)
        except InputError:  # a verdict on the baseline has no candidate
            return self._origins.setdefault(candidate, ("", ""))
        return self._origins.setdefault(candidate, (one.slot, one.hypothesis))

    def _classes(self, row: CampaignRow, verdicts: list[VerdictRow],
                 decisions: list[DecisionRow]) -> ClassTable | None:
        """Return the classes of the headline, else of the newest kept verdict, else of the best.

        Where all that was kept was rolled back they are the baseline's.
        """
        headline = next((one for one in self.reader.verdicts(
            row.id, candidate=row.best_commit[:12]) if one.purpose == "headline"), None)
        if headline is not None:
            return self._table(headline, "against the baseline")
        kept = self.reader.candidates(row.id, states=("kept",))
        if kept and row.best_commit != row.base_commit:
            best = next((one for one in reversed(kept) if one.commit == row.best_commit), kept[-1])
            judged = {d.verdict for d in decisions if d.candidate == best.id and d.kind == "keep"}
            rows = self.reader.verdicts(row.id, candidate=best.id)
            chosen = next((one for one in rows if one.id in judged), None) \
                or next((one for one in rows if one.speedup is not None), None)
            return self._table(chosen, "kept")
        if kept:
            base = self.reader.verdicts(row.id, candidate="baseline", limit=1)
            return self._table(next(iter(base), None), "which is the best again")
        timed = [one for one in verdicts if one.speedup is not None]
        return self._table(max(timed, key=lambda one: one.speedup or 0.0, default=None),
                           "best so far")

    def _table(self, chosen: VerdictRow | None, said: str) -> ClassTable | None:
        body = self._memory.body(chosen) if chosen else None
        if chosen is None or body is None:
            return None
        return ClassTable(f"{phrases.short(chosen.candidate)}, {said}", body.rows)

    def _events(self, campaign: str) -> tuple[LogLine, ...]:
        if campaign != self._log_of:
            self._log, self._log_of, self._origins = (), campaign, {}
        fresh = (self.reader.events(campaign=campaign, after=self._log[-1].seq, limit=LOG)
                 if self._log else [])
        if len(fresh) == LOG or not self._log:
            self._log, fresh = (), self.reader.last_events(campaign, limit=LOG)
        for one in fresh:
            if one.kind in ("candidate.captured", "verdict", "decision"):
                self._learn(one)
        lines = tuple(LogLine(e.seq, e.at, e.kind, phrases.event(e)) for e in fresh)
        self._log = (*self._log, *lines)[-LOG:]
        return self._log

    def _learn(self, one: Event) -> None:
        """Remember from an event which slot a candidate came from and what it claims."""
        facts = phrases.facts(one)
        slot, claim = facts.get("slot"), facts.get("hypothesis")
        before = self._origins.pop(one.ref, ("", ""))
        self._origins[one.ref] = (slot if isinstance(slot, str) else before[0],
                                  claim if isinstance(claim, str) else before[1])
        if len(self._origins) > ORIGINS:
            del self._origins[next(iter(self._origins))]

    def _report(self, row: CampaignRow) -> str:
        """Return the campaign's report, made anew once a round, since it reads everything."""
        from engine.records.report.markdown_report import markdown

        def make() -> str:
            one = self.reader.campaign(row.id)
            return harmless_lines(markdown(self.reader, one).encode()) if one else ""
        key = ("report", row.id, row.state, str(row.round), row.best_commit)
        return self._memory.once(key, make)

    # One candidate.

    def _candidate_at(self, seq: int, campaign: str, candidate: str) -> CandidateView:
        key = (campaign, candidate, seq)
        if self._candidate is None or self._candidate[0] != key:
            self._candidate = key, candidate_view(
                self.reader, self._memory, self.workspace, campaign, candidate, self._home.waiting)
        return self._candidate[1]


def _speedup(value: float | None, low: float | None, high: float | None) -> Speedup | None:
    return None if value is None else Speedup(value, low, high)


def _speedup_of(row: VerdictRow | None) -> Speedup | None:
    return _speedup(row.speedup, row.low, row.high) if row else None
