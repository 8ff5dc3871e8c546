"""What became of each config class: its baseline, then what every kept change made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.records import DecisionRow, VerdictRow
from engine.markdown import gain, micros

HEAD = ("round", "commit", "class", "time", "against the last best", "against the baseline")


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How fast one class was after a keep, or at first; gains are ln(before / after)."""

    round: int
    commit: str
    config_class: str
    core: bool
    latency_us: float | None
    against_last_best: float | None
    against_baseline: float | None
    outcome: str

    @property
    def name(self) -> str:
        return self.config_class + (" (core)" if self.core else "")


class ClassStep(msgspec.Struct, frozen=True, kw_only=True):
    """All classes after one keep, and when that was known."""

    at: float
    round: int
    commit: str
    marks: tuple[Mark, ...]


def steps(past: CampaignHistory) -> Iterator[ClassStep]:
    """Yield the baseline, then each keep once it was measured against that.

    Of several keeps of one round the last is. Where none was by the end of its round, they stand
    as they were measured against the best before them: what was once said is not taken back.
    """
    rows = list(past.verdicts.values())
    first = next((row for row in rows if row.purpose == "baseline"), None)
    if first is not None:
        yield _step(1, past.base, first, first, None)
    headlines = {row.candidate: row for row in reversed(rows) if row.purpose == "headline"}
    for keep in past.keeps:
        own = past.verdicts.get(keep.verdict or 0)
        if own is not None and _unmeasured(past, keep, headlines):
            yield _step(keep.round, keep.commit, own, None, own)
        if found := headlines.get(keep.commit[:12]):
            yield _step(keep.round, keep.commit, found, found, own)


def by_class(past: CampaignHistory) -> list[Mark]:
    """Return each class's history, class by class; none where nothing was kept."""
    if not past.keeps:
        return []
    found: dict[str, list[Mark]] = {}
    for step in steps(past):
        for mark in step.marks:
            found.setdefault(mark.config_class, []).append(mark)
    return [mark for marks in found.values() for mark in marks]


def cells(mark: Mark) -> tuple[str, str, str, str]:
    """Return a class, its time and its gains as a table shows them."""
    last = "" if mark.against_last_best is None else gain(mark.against_last_best)
    return mark.name, micros(mark.latency_us), last, gain(mark.against_baseline)


def _unmeasured(past: CampaignHistory, keep: DecisionRow,
                headlines: Mapping[str, VerdictRow]) -> bool:
    """Tell whether a round that had kept this was over with nothing measured against the baseline.
    """
    ended = next((r.ended_at for r in past.rounds if r.n == keep.round), None)
    known = (headlines.get(other.commit[:12]) for other in past.keeps if other.round == keep.round)
    return ended is not None and keep.at <= ended and \
        not any(row is not None and row.at <= ended for row in known)


def _step(n: int, commit: str, shown: VerdictRow, headline: VerdictRow | None,
          own: VerdictRow | None) -> ClassStep:
    first = shown.purpose == "baseline"
    before = {row.config_class: row.log_ratio
              for row in (() if own is None else own.decode().rows)}
    return ClassStep(at=shown.at, round=n, commit=commit, marks=tuple(Mark(
        round=n, commit=commit, config_class=row.config_class, core=row.core,
        latency_us=row.latency_us, outcome="" if first else row.outcome,
        against_last_best=before.get(row.config_class),
        against_baseline=None if headline is None else 0.0 if first else row.log_ratio)
        for row in shown.decode().rows))
