"""The newest verdicts and decisions of a campaign, one line each, newest first."""

from __future__ import annotations

from engine.journal.read import Reader
from engine.journal.records import DecisionRow, Event, VerdictRow
from harness.errors import InputError
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.cache import SnapshotCache, harmless
from kopt_tui.snapshot.campaign_rows import speedup_of
from kopt_tui.snapshot.snapshot import StreamLine

LINES = 80
LOOKUPS = 3
MOST_ORIGINS = 2000


class CandidateOrigins:
    """The slot and the hypothesis of candidates, learned from events or looked up."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[str, tuple[str, str]] = {}
        self._lookups_left = 0
        self.incomplete = False
        """A candidate was not looked up, because `start` allows a few look-ups only."""

    def start(self) -> None:
        """Allow a few look-ups: each reads a whole index, so one snapshot makes only some."""
        self._lookups_left, self.incomplete = LOOKUPS, False

    def forget(self) -> None:
        """Forget all candidates, before another campaign is shown."""
        self._known.clear()

    def learn(self, event: Event) -> None:
        """Remember what an event says of its candidate."""
        if event.kind not in ("candidate.captured", "verdict", "decision"):
            return
        payload = phrases.facts(event)
        slot, claim = payload.get("slot"), payload.get("hypothesis")
        before = self._known.pop(event.ref, ("", ""))
        self._known[event.ref] = (slot if isinstance(slot, str) else before[0],
                                  claim if isinstance(claim, str) else before[1])
        if len(self._known) > MOST_ORIGINS:
            del self._known[next(iter(self._known))]

    def of(self, campaign: str, candidate: str) -> tuple[str, str]:
        """Return slot and hypothesis, empty while they are not known."""
        known = self._known.get(candidate)
        if known is not None:
            return known
        if self._lookups_left == 0:
            self.incomplete = True
            return "", ""
        self._lookups_left -= 1
        try:
            row = self._reader.candidate(candidate, campaign)
        except InputError:  # a verdict on the baseline has no candidate
            return self._known.setdefault(candidate, ("", ""))
        return self._known.setdefault(candidate, (row.slot, row.hypothesis))


def stream_lines(verdicts: list[VerdictRow], decisions: list[DecisionRow],
                 origins: CandidateOrigins, cache: SnapshotCache) -> tuple[StreamLine, ...]:
    """Return a line per verdict, with the newest decision on it, and per decision without one."""
    newest: dict[int, DecisionRow] = {}
    for decision in decisions:
        if decision.verdict is not None:
            newest.setdefault(decision.verdict, decision)
    lines = [_verdict_line(verdict, newest.get(verdict.id), origins, cache)
             for verdict in verdicts if verdict.purpose != "canary"]  # canaries fail by design
    lines += [_decision_line(decision, origins) for decision in decisions
              if decision.verdict is None]
    return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:LINES])


def _verdict_line(row: VerdictRow, decision: DecisionRow | None, origins: CandidateOrigins,
                  cache: SnapshotCache) -> StreamLine:
    slot, hypothesis = origins.of(row.campaign, row.candidate)
    measured = row.purpose if row.purpose in ("headline", "baseline", "e2e") else "measured"
    outcome = (measured if row.correct else "incorrect") if row.valid else "invalid"
    if decision is not None:
        outcome, reason = decision.kind, decision.reason
    else:
        verdict = None if row.valid and row.correct else cache.verdict(row)
        reason = (verdict.rejected_reason if verdict else "") or ""
    return harmless(StreamLine(
        key=f"v{row.id}", at=max(row.at, decision.at if decision else 0.0), slot=slot,
        candidate=row.candidate, purpose=row.purpose, outcome=outcome, reason=reason,
        speedup=speedup_of(row), latency_us=row.latency_us, hypothesis=hypothesis,
    ))


def _decision_line(row: DecisionRow, origins: CandidateOrigins) -> StreamLine:
    slot, hypothesis = origins.of(row.campaign, row.candidate)
    return harmless(StreamLine(
        key=f"d{row.id}", at=row.at, slot=slot, candidate=row.candidate, purpose="",
        outcome=row.kind, speedup=None, latency_us=None, reason=row.reason,
        hypothesis=hypothesis,
    ))
