"""How often each strategy, transformation and template has helped on a card, from the journal."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Slot
from engine.knowledge import strategy_table
from engine.knowledge.strategy_table import StrategyPlace, StrategyRow, against, shown, strategies
from harness.formats import quantities

KEPT = ("keep", "provisional")
LISTED = 8
"""The most rows of a brief."""


class StrategyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How often a strategy led to a candidate, how many were kept, and their median gain."""

    tried: int = 0
    kept: int = 0
    gain: float | None = None
    """The median speedup of what was kept, against the best of that moment."""

    @property
    def chance(self) -> float:
        """The share of tries that are kept, smoothed: one half before the first try."""
        return (self.kept + 1) / (self.tried + 2)

    def __str__(self) -> str:
        if not self.tried:
            return "not tried"
        gain = "" if self.gain is None else f", median {quantities.ratio(self.gain)}"
        return f"tried {self.tried}, kept {self.kept}{gain}"


NO_RECORD = StrategyRecord()


def of_card(reader: Reader, gpu: str = "") -> dict[str, StrategyRecord]:
    """Return a workspace's records; `gpu` selects the campaigns on that card.

    Records are by a strategy's key, or by the name of a transformation or template.
    """
    outcomes: dict[str, list[float | None]] = {}
    for campaign in reader.campaigns():
        if gpu and campaign.gpu != gpu:
            continue
        kept = {decision.candidate for decision in reader.decisions(campaign.id)
                if decision.kind in KEPT}
        ids_by_slot: dict[tuple[int, str], list[str]] = {}
        for candidate in reader.candidates(campaign.id):
            ids_by_slot.setdefault((candidate.round, candidate.slot), []).append(candidate.id)
        for slot in reader.slots(campaign.id):
            candidates = ids_by_slot.get((slot.round, slot.slot), [])
            if candidates:
                best = next((candidate for candidate in candidates if candidate in kept), "")
                for key in set(_keys(slot)):
                    outcomes.setdefault(key, []).append(
                        _gain(reader, campaign.id, best) if best else None)
    return {key: _record(gains) for key, gains in outcomes.items()}


def _keys(slot: Slot) -> Iterator[str]:
    """Yield what a slot has followed: strategies by key, transformations and templates by name."""
    if slot.idea:
        yield slot.idea
    if slot.backend in ("transform", "rewrite-template") and slot.option:
        yield slot.option.partition(":")[0]  # the rest is the file that it changed
        yield from (row.key for row in strategies() if slot.option in row.templates)
    elif slot.backend == "search" and slot.limiter and (row := shown(slot.limiter)) is not None:
        yield row.key


def _gain(reader: Reader, campaign: str, candidate: str) -> float:
    verdict = next((row for row in reader.verdicts(campaign, candidate=candidate)
                    if row.purpose == "verify" and row.speedup), None)
    return verdict.speedup or 1.0 if verdict is not None else 1.0


def _record(gains: Sequence[float | None]) -> StrategyRecord:
    kept = [gain for gain in gains if gain is not None]
    return StrategyRecord(tried=len(gains), kept=len(kept),
                          gain=statistics.median(kept) if kept else None)


def brief(limiters: Sequence[str], place: StrategyPlace,
          records: Mapping[str, StrategyRecord]) -> str:
    """Return the strategies against a kernel's limits as Markdown, the best chance first."""
    rows: dict[str, tuple[str, StrategyRow]] = {}
    for limiter in dict.fromkeys(limiters):
        for row in against(limiter, place):
            if row.against and "{column}" not in row.text:
                rows.setdefault(row.text, (limiter, row))
    return _listed("these limits", rows.values(), records)


def brief_on_symptoms(causes: Sequence[str], place: StrategyPlace,
                      records: Mapping[str, StrategyRecord]) -> str:
    """Return the strategies against the symptoms that causes name, as Markdown."""
    rows = {row.key: (symptom, row) for cause in causes
            for symptom, row in strategy_table.seen_in(cause, place)}
    return _listed("what the profile shows", rows.values(), records)


def _listed(what: str, rows: Iterable[tuple[str, StrategyRow]],
            records: Mapping[str, StrategyRecord]) -> str:
    best = sorted(rows, key=lambda pair: -records.get(pair[1].key, NO_RECORD).chance)
    lines = [f"- against {limiter}: {row.text} (expected {row.gain}; risk: {row.risk}; here "
             f"{records.get(row.key, NO_RECORD)})" for limiter, row in best[:LISTED]]
    return "\n".join([f"## Strategies against {what}", "", *lines, ""]) if lines else ""
