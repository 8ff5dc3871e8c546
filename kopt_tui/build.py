"""From the journal to a Snapshot: reads state tables and the newest events, never a history."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, DecisionRow, Event, Lease, VerdictRow
from engine.lease import alive, host_name
from harness.errors import InputError
from harness.text import plain
from harness.verdict import Verdict
from kopt_tui import words
from kopt_tui.snapshot import (
    CampaignRow,
    CampaignView,
    CandidateView,
    ClassTable,
    Engine,
    Focus,
    JudgedVerdict,
    LogLine,
    RoundPoint,
    SlotLine,
    Snapshot,
    Speedup,
    VerdictLine,
    WaitingRow,
)

Value = TypeVar("Value")

STREAM = 80
LOG = 400
LOOKUPS = 10
MEMORY = 2000
PATCH_BYTES = 512 * 1024
LIVE = ("new", "running", "paused", "waiting")


class Builder:
    """Builds snapshots from one Reader, remembering what can no longer change."""

    def __init__(self, workspace: Path, reader: Reader, clock: Callable[[], float]) -> None:
        self.workspace = workspace
        self.reader = reader
        self.clock = clock
        self._log: tuple[LogLine, ...] = ()
        self._log_of = ""
        self._origins: dict[str, tuple[str, str]] = {}
        self._lookups = 0
        self.incomplete = False
        """Some lines of the last snapshot lack what the next one will have."""
        self._memory: OrderedDict[tuple[str, ...], object] = OrderedDict()

    def snapshot(self, focus: Focus) -> Snapshot:
        """Return the journal as it is now, with the details that `focus` asks for."""
        self._lookups, self.incomplete = LOOKUPS, False
        newest = self.reader.last_events(limit=1)
        counts = self.reader.waiting_counts()
        rows = tuple(self._row(one, counts.get(one.id, 0)) for one in self.reader.campaigns())
        waiting = tuple(one for row in rows if row.waiting for one in self._waiting(row.id))
        row = next((row for row in rows if row.id == focus.campaign), None)
        asked = dict.fromkeys((focus.campaign, *focus.asked) if row else focus.asked)
        return Snapshot(
            seq=newest[-1].seq if newest else 0, at=self.clock(), campaigns=rows, waiting=waiting,
            controls=tuple(harmless(c) for id in asked for c in self.reader.controls(id)[-20:]),
            view=self._view(row) if row else None,
            candidate=self._candidate(row, focus.candidate, waiting)
            if row and focus.candidate else None,
        )

    # The table of campaigns.

    def _row(self, one: Campaign, waiting: int) -> CampaignRow:
        live = one.state in LIVE
        lease = self.reader.lease(one.id) if live else None
        chart = (self._chart(one.id) if live else
                 self._once(("chart", one.id, str(one.updated_at)), lambda: self._chart(one.id)))
        return harmless(CampaignRow(
            id=one.id, target=one.op, lang=one.lang or one.backend, device=one.device or one.gpu,
            state=one.state, phase=one.phase, reason=one.reason, round=one.round,
            rounds_max=one.rounds_max, best=_speedup(one.speedup, one.speedup_low,
                                                     one.speedup_high),
            waiting=waiting, updated_at=one.updated_at, created_at=one.created_at,
            trend=tuple(point.best for point in chart), engine=_engine(lease), project=one.project,
            base_commit=one.base_commit, best_commit=one.best_commit,
        ))

    def _chart(self, campaign: str) -> tuple[RoundPoint, ...]:
        ended = [one for one in self.reader.rounds(campaign) if one.ended_at is not None]
        points = [RoundPoint(0, 1.0, "baseline")]
        for one in ended:
            if one.n > 0:
                points.append(RoundPoint(one.n, one.best_speedup or points[-1].best,
                                         one.outcome or "failed"))
        return tuple(points)

    def _waiting(self, campaign: str) -> list[WaitingRow]:
        found = self.reader.candidates(campaign, states=("waiting",))
        return [self._waiting_row(one) for one in found]

    def _waiting_row(self, one: Candidate) -> WaitingRow:
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
        verdicts = self.reader.verdicts(row.id, limit=STREAM)
        decisions = self.reader.decisions(row.id, limit=STREAM * 2)
        log = self._events(row.id)
        lines = self._stream(row.id, verdicts, decisions)
        slots = self.reader.slots(row.id, row.round)
        return CampaignView(
            row=row, verdicts=lines, chart=self._chart(row.id), log=log,
            slots=tuple(harmless(SlotLine(
                slot=s.slot, kind=s.kind, backend=s.backend, stage=s.stage, detail=s.detail,
                progress=s.progress, device=s.device, hypothesis=s.hypothesis,
                bottleneck=s.bottleneck, candidate=s.candidate)) for s in slots),
            classes=self._classes(row, verdicts, decisions),
            bottlenecks=tuple(harmless(b) for b in self.reader.bottlenecks(row.id)),
        )

    def _stream(self, campaign: str, verdicts: list[VerdictRow],
                decisions: list[DecisionRow]) -> tuple[VerdictLine, ...]:
        newest: dict[int, DecisionRow] = {}
        for one in decisions:
            if one.verdict is not None:
                newest.setdefault(one.verdict, one)
        lines = [self._verdict_line(one, newest.get(one.id)) for one in verdicts]
        lines += [self._decision_line(one, campaign) for one in decisions if one.verdict is None]
        return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:STREAM])

    def _verdict_line(self, one: VerdictRow, decision: DecisionRow | None) -> VerdictLine:
        slot, hypothesis = self._origin(one.campaign, one.candidate)
        outcome = ("measured" if one.correct else "incorrect") if one.valid else "invalid"
        if decision is not None:
            outcome, reason = decision.kind, decision.reason
        else:
            body = None if one.valid and one.correct else self._body(one)
            reason = (body.rejected_reason if body else "") or ""
        return harmless(VerdictLine(
            key=f"v{one.id}", at=max(one.at, decision.at if decision else 0.0), slot=slot,
            candidate=one.candidate, purpose=one.purpose, outcome=outcome,
            speedup=_speedup_of(one), latency_us=one.latency_us, reason=reason,
            hypothesis=hypothesis,
        ))

    def _decision_line(self, one: DecisionRow, campaign: str) -> VerdictLine:
        slot, hypothesis = self._origin(campaign, one.candidate)
        return harmless(VerdictLine(
            key=f"d{one.id}", at=one.at, slot=slot, candidate=one.candidate,
            purpose="", outcome=one.kind, speedup=None, latency_us=None, reason=one.reason,
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
        kept = next((d for d in decisions if d.kind == "keep" and d.verdict is not None), None)
        if kept is None and row.best_commit != row.base_commit:
            kept = self._once(("keep", row.id, row.best_commit), lambda: next(
                (d for d in self.reader.decisions(row.id) if d.kind == "keep"), None))
        if kept is not None:
            return self._once(("classes", row.id, str(kept.verdict)), lambda: self._table(
                kept.candidate, "kept", self.reader.verdicts(row.id, candidate=kept.candidate),
                kept.verdict))
        timed = [one for one in verdicts if one.speedup is not None]
        best = max(timed, key=lambda one: one.speedup or 0.0, default=None)
        return self._table(best.candidate, "best so far", [best], best.id) if best else None

    def _table(self, candidate: str, said: str, rows: list[VerdictRow],
               id: int | None) -> ClassTable | None:
        chosen = next((row for row in rows if row.id == id), rows[0] if rows else None)
        body = self._body(chosen) if chosen else None
        return ClassTable(f"{words.short(candidate)}, {said}", body.rows) if body else None

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
        lines = tuple(LogLine(e.seq, e.at, e.kind, words.event(e)) for e in fresh)
        self._log = (*self._log, *lines)[-LOG:]
        return self._log

    def _learn(self, one: Event) -> None:
        """Remember from an event which slot a candidate came from and what it claims."""
        facts = words.facts(one)
        slot, claim = facts.get("slot"), facts.get("hypothesis")
        before = self._origins.pop(one.ref, ("", ""))
        self._origins[one.ref] = (slot if isinstance(slot, str) else before[0],
                                  claim if isinstance(claim, str) else before[1])
        if len(self._origins) > MEMORY:
            del self._origins[next(iter(self._origins))]

    # One candidate.

    def _candidate(self, row: CampaignRow, candidate: str,
                   waiting: tuple[WaitingRow, ...]) -> CandidateView:
        try:
            one = self.reader.candidate(candidate, row.id)
        except InputError as error:
            return CandidateView(campaign=row.id, candidate=None, missing=str(error))
        text, note = self._once(("patch", one.patch_sha256, one.patch_path),
                                lambda: self._patch(row, one))
        return CandidateView(
            campaign=row.id, candidate=harmless(one), patch=text, patch_note=note,
            verdicts=tuple(JudgedVerdict(v.id, v.purpose, v.at, self._body(v))
                           for v in self.reader.verdicts(row.id, candidate=one.id, limit=20)),
            decisions=tuple(harmless(d) for d in self.reader.decisions(row.id)
                            if d.candidate == one.id),
            controls=tuple(harmless(c) for c in self.reader.controls(row.id)
                           if c.candidate == one.id),
            waiting=next((w for w in waiting if w.candidate == one.id), None),
        )

    def _patch(self, row: CampaignRow, one: Candidate) -> tuple[str, str]:
        """Return the patch as text, and why it is not whole or not there."""
        campaign = self.reader.campaign(row.id)
        path = self.workspace / (campaign.path if campaign else row.id) / one.patch_path
        try:
            with path.open("rb") as file:
                data = file.read(PATCH_BYTES + 1)
        except OSError as error:
            return "", f"the patch cannot be read: {error.strerror}: {path}"
        if len(data) > PATCH_BYTES:
            return _text(data[:PATCH_BYTES]), f"first {PATCH_BYTES // 1024} KiB of {path}"
        if hashlib.sha256(data).hexdigest() != one.patch_sha256:
            return _text(data), "the file's hash is not the recorded one: it was changed"
        return _text(data), ""

    # Remembering.

    def _body(self, row: VerdictRow) -> Verdict | None:
        def decode() -> Verdict | None:
            try:
                return harmless(msgspec.json.decode(row.body, type=Verdict))
            except (msgspec.DecodeError, ValueError):
                return None
        return self._once(("body", row.campaign, str(row.id)), decode)

    def _once(self, key: tuple[str, ...], make: Callable[[], Value]) -> Value:
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]  # type: ignore[return-value]
        made = make()
        self._memory[key] = made
        while len(self._memory) > 600:
            self._memory.popitem(last=False)
        return made


def harmless(value: Value) -> Value:
    """Return a record with every text in it stripped of control characters, on one line."""
    if isinstance(value, str):
        return words.clean(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(harmless(item) for item in value)  # type: ignore[return-value]
    if isinstance(value, msgspec.Struct):
        fields = {name: harmless(item) for name in value.__struct_fields__
                  if isinstance(item := getattr(value, name), str | tuple | msgspec.Struct)}
        return msgspec.structs.replace(value, **fields)
    return value


def _text(data: bytes) -> str:
    return "\n".join(plain(line.expandtabs(4), 400)
                     for line in data.decode("utf-8", "replace").split("\n"))


def _engine(lease: Lease | None) -> Engine:
    if lease is None:
        return Engine()
    return Engine(word="alive" if alive(lease) else "lost", host=host_name(lease), pid=lease.pid)


def _speedup(value: float | None, low: float | None, high: float | None) -> Speedup | None:
    return None if value is None else Speedup(value, low, high)


def _speedup_of(row: VerdictRow | None) -> Speedup | None:
    return _speedup(row.speedup, row.low, row.high) if row else None
