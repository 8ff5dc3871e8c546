"""The history of each config class: its baseline, then its time after every kept change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.records import measured
from harness.formats import quantities
from harness.timing.outcome import row_word

HEAD = ("round", "commit", "class", "time", "against the last best", "against the baseline")


class ClassMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one class after a keep, or of the baseline.

    `against_...` are gains, ln(before / after); `words_...` are the same gains as text.
    """

    round: int
    commit: str
    config_class: str
    core: bool
    latency_us: float | None
    against_last_best: float | None
    against_baseline: float | None
    words_last_best: str
    words_baseline: str
    outcome: str

    @property
    def name(self) -> str:
        return self.config_class + (" (core)" if self.core else "")


class ClassStep(msgspec.Struct, frozen=True, kw_only=True):
    """All classes of the baseline or after one kept change; `at` is when they were measured."""

    at: float
    round: int
    commit: str
    classes: tuple[ClassMeasurement, ...]


def steps(past: CampaignHistory) -> Iterator[ClassStep]:
    """Yield the baseline, then each kept change that was measured against the baseline.

    Of several changes kept in one round, only the last is measured against the baseline. If none
    was by the end of the round, each keep gets a step with its gain over the best before it; that
    step stays when one is measured later, as the trend file is only appended to.
    """
    rows = list(past.verdicts.values())
    first = past.baseline
    if first is not None:
        yield _step(1, past.base, first, first, None)
    headlines = {row.candidate: row for row in reversed(rows) if row.purpose == "headline"}
    for keep in past.keeps:
        keep_row = past.row_of(keep)
        if keep_row is not None and _is_unmeasured(past, keep, headlines):
            yield _step(keep.round, keep.commit, keep_row, None, keep_row)
        if headline := headlines.get(keep.commit[:12]):
            yield _step(keep.round, keep.commit, headline, headline, keep_row)


def by_class(past: CampaignHistory) -> list[ClassMeasurement]:
    """Return the history of each class, one class after the other; [] if nothing was kept."""
    if not past.keeps:
        return []
    of_class: dict[str, list[ClassMeasurement]] = {}
    for step in steps(past):
        for measurement in step.classes:
            of_class.setdefault(measurement.config_class, []).append(measurement)
    return [measurement for steps_of_class in of_class.values() for measurement in steps_of_class]


def rows(past: CampaignHistory) -> list[tuple[str, ...]]:
    """Return the table of HEAD: each class's baseline and its time after every keep."""
    undone = past.undone
    return [(str(row.round), row.commit[:12] + (" (rolled back)" if row.commit in undone else ""),
             *cells(row)) for row in by_class(past)]


def cells(measurement: ClassMeasurement) -> tuple[str, str, str, str]:
    """Return a table's cells: the class, its time, its gains over the last best and baseline."""
    return (measurement.name, quantities.latency_us(measurement.latency_us),
            measurement.words_last_best, measurement.words_baseline)


def _is_unmeasured(past: CampaignHistory, keep: DecisionRow,
                   headlines: Mapping[str, VerdictRow]) -> bool:
    """Return whether `keep` was made in a round by whose end no kept change was measured."""
    ended = next((round.ended_at for round in past.rounds if round.n == keep.round), None)
    measurements = (headlines.get(other.commit[:12])
                for other in past.keeps if other.round == keep.round)
    return ended is not None and keep.at <= ended and \
        not any(row is not None and row.at <= ended for row in measurements)


def _step(n: int, commit: str, shown: VerdictRow, headline: VerdictRow | None,
          keep_row: VerdictRow | None) -> ClassStep:
    is_baseline = shown.purpose == "baseline"
    against_best = {row.config_class: row for row in verdict_of(keep_row).rows} if keep_row else {}
    return ClassStep(at=shown.at, round=n, commit=commit, classes=tuple(ClassMeasurement(
        round=n, commit=commit, config_class=row.config_class, core=row.core,
        latency_us=row.latency_us, outcome="" if is_baseline else row_word(row),
        against_last_best=before.log_ratio if before else None,
        against_baseline=None if headline is None else 0.0 if is_baseline else row.log_ratio,
        words_last_best=measured.gain(before) if before and before.log_ratio is not None else "",
        words_baseline="not measured" if headline is None else
        quantities.gain(0.0) if is_baseline else measured.gain(row))
        for row in verdict_of(shown).rows for before in [against_best.get(row.config_class)]))
