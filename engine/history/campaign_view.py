"""What a journal holds about one campaign, for the files that kopt writes for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from engine.history import history, lessons, waiting_line
from engine.history.history import CampaignHistory
from engine.history.kernel_splits import Splits
from engine.history.lessons import Lesson
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.model_costs import ModelBill, ModelCost
from engine.journal.read import Reader
from engine.journal.records import Campaign, Phase, Round, Slot, phase_of, with_doubt
from engine.manifest import load
from engine.manifest.schema import Manifest
from engine.markdown import stamp
from harness.errors import KoptError
from harness.formats.quantities import counted

T = TypeVar("T")
NOT_RUN = "e2e.not_run"
"""The kind of the event that says why the whole program was not run with the best kernel."""


class StopRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `campaign.stop` event; what was spent is the sum over all engines."""

    reason: str
    doubt: str = ""
    wall_s: float = 0.0
    trials: int = 0
    cost: float = 0.0
    models: ModelBill = ModelBill()
    waiting: int = 0
    provisional: str = ""
    """The provisional best and its speedup, in words, "" if nothing waited."""
    nothing_left_on: str = ""
    """The provisional best on which nothing was left to try, "" if another reason ended it."""

    @property
    def outcome(self) -> str:
        """Why the campaign stopped, with the doubt about its best."""
        return with_doubt(self.reason, self.doubt)


class StagnationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `stagnation` event: the review that a round started with."""

    round: int
    depth: str
    rounds_without_gain: int = msgspec.field(name="rollbacks")
    demands: str
    directions: tuple[str, ...]


class _Created(msgspec.Struct, frozen=True):
    """The part of a `campaign.created` event that is read here; older journals lack it."""

    utc_offset_s: int | None = None


class _StateChange(msgspec.Struct, frozen=True):
    state: str = ""
    phase: str = ""


class TipsRead(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `tips.read` event: the lessons known before the baseline."""

    path: str
    lessons: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def summary(self) -> str:
        more = f"; {self.left_out} older ones were left out" if self.left_out else ""
        return f"{self.path}: {counted(len(self.lessons), 'lesson')}{more}"


class ProgramNotRun(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an `e2e.not_run` event: for which commit, and why."""

    commit: str
    message: str


class LimitsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `limits` event: what changed, as `max_iterations 4 → 8`, and by whom."""

    message: str
    by: str


class JournalView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the files for people show; slots and reviews are by round."""

    row: Campaign
    history: CampaignHistory
    slots: dict[int, Sequence[Slot]]
    reviews: dict[int, StagnationRecord]
    stops: tuple[tuple[float, StopRecord], ...]
    """Stops with their times."""
    tips: tuple[tuple[float, TipsRead], ...] = ()
    phases: tuple[tuple[float, Phase], ...] = ()
    """When each phase began."""
    not_run: tuple[tuple[float, ProgramNotRun], ...] = ()
    limits: tuple[tuple[float, LimitsChanged], ...] = ()
    costs: tuple[ModelCost, ...] = ()
    """What models cost, by attempt."""
    splits: Splits = {}
    manifest: Manifest
    """The campaign's manifest, or default values if it cannot be read."""
    utc_offset_s: int | None = None
    """The UTC offset where the campaign started, so that its files are the same everywhere."""
    provisional: str = ""
    """The provisional best in words, "" if nothing waits."""
    lessons: tuple[Lesson, ...] = ()
    """The lessons of the campaign, whether or not tips.md has them already."""
    engine_gone: str = ""
    """How a campaign whose engine was killed goes on; "" for others, and in the campaign's files:
    only the reader at this moment can know."""

    @property
    def state(self) -> str:
        """The campaign's state in a word, `lost` if its engine was killed."""
        return "lost" if self.engine_gone and self.row.state == "running" else self.row.state

    @property
    def outcome(self) -> str:
        """Why the campaign ended or waits, or how it goes on."""
        return self.engine_gone or self.row.outcome

    def phases_of(self, round: Round) -> str:
        """Return the phases that began in a round or since the previous one, and their times."""
        ends = [r.ended_at for r in self.history.rounds if r.n < round.n and r.ended_at is not None]
        since, until = max(ends, default=0.0), round.ended_at or math.inf
        begun = [(at, phase) for at, phase in self.phases if since < at <= until]
        return ", ".join(f"{phase} from {self.stamp(at)}"
                         for number, (at, phase) in enumerate(begun)
                         if not number or begun[number - 1][1] != phase)

    @property
    def campaign(self) -> str:
        return self.row.id

    @property
    def ended_at(self) -> float:
        """The time of the newest stop, decision or round."""
        return max([self.row.created_at, *(at for at, _ in self.stops),
                    *(d.at for d in self.history.decisions),
                    *(r.ended_at or r.started_at for r in self.history.rounds)])

    def stamp(self, at: float) -> str:
        """Return a time as the campaign's files write it."""
        return stamp(at, self.utc_offset_s)

    def why(self, keep: DecisionRow) -> str:
        """Return a kept change, where it gained, what it was aimed at, and who kept it."""
        return lessons.why(self.history, keep)

    @property
    def end_to_end(self) -> tuple[VerdictRow, ...]:
        """Verdicts on the whole program, baseline against best."""
        return tuple(row for row in self.history.verdicts.values() if row.purpose == "e2e")

    @property
    def program_not_run(self) -> ProgramNotRun | None:
        """Why the whole program was not run with the best, if it was not."""
        best = self.history.best[:12]
        if any(row.candidate == best for row in self.end_to_end):
            return None
        return next((record for _, record in reversed(self.not_run) if record.commit == best),
                    None)

    @property
    def measured_by(self) -> str:
        """The command whose measurements decide."""
        return self.manifest.benchmark_command or "kopt's own harness"

    @property
    def tested_by(self) -> str:
        """What decides whether a candidate is correct."""
        test, rule = self.manifest.test_command, self.manifest.target.check
        if not isinstance(rule, str):
            rule = f"{rule.column} {rule.rule}".rstrip()
        check = f"the benchmark's own check: {rule}" \
            if rule and self.manifest.target.kind == "command" else \
            "the comparison with the reference"
        return f"{test}; {check}" if test else check


def read_with_manifest(reader: Reader, row: Campaign) -> JournalView:
    """Read a campaign's view, with its manifest if that file can be read."""
    try:
        manifest = load.load(Path(row.path) / "manifest.yaml")
    except KoptError:
        manifest = None
    return read(reader, row.id, manifest)


def read(reader: Reader, campaign: str, manifest: Manifest | None = None) -> JournalView:
    """Read a campaign's view; raises LookupError if there is no such campaign."""
    manifest = manifest or Manifest(target_op="-")
    past = history.read(reader, campaign, manifest.decision.score)
    row = reader.campaign(campaign)
    assert row is not None
    return JournalView(
        row=row, history=past, utc_offset_s=next((created.utc_offset_s for _, created in _timed(
            reader, campaign, "campaign.created", _Created)), None),
        manifest=manifest, lessons=lessons.of(past),
        provisional=waiting_line.provisional(reader, campaign),
        slots={r.n: reader.slots(campaign, r.n) for r in past.rounds},
        reviews={review.round: review for review in reader.payloads(
            campaign, "stagnation", StagnationRecord)},
        stops=_timed(reader, campaign, "campaign.stop", StopRecord),
        tips=_timed(reader, campaign, "tips.read", TipsRead),
        phases=tuple((at, phase) for at, record in _timed(
            reader, campaign, "campaign.state", _StateChange) if (phase := phase_of(record.phase))),
        not_run=_timed(reader, campaign, NOT_RUN, ProgramNotRun),
        limits=_timed(reader, campaign, "limits", LimitsChanged),
        costs=tuple(reader.model_costs(campaign)))


def has_untried_best(reader: Reader, campaign: Campaign) -> bool:
    """Return whether rounds are left that could go on from a best that is newer than the end.

    A person's approval after the end may have kept it. A gain that waited at the end is not newer:
    the last rounds went on from it.
    """
    if campaign.state not in ("waiting", "finished") or \
            campaign.best_commit == campaign.base_commit or \
            campaign.round >= (campaign.rounds_max or campaign.round + 1):
        return False
    return _exhausted_commit(reader, campaign) not in ("", _tip(reader, campaign))


def has_nothing_left(reader: Reader, campaign: Campaign) -> bool:
    """Return whether a campaign ended because nothing was left to try on what is still its best."""
    exhausted = _exhausted_commit(reader, campaign)
    return exhausted != "" and exhausted == _tip(reader, campaign)


def _exhausted_commit(reader: Reader, campaign: Campaign) -> str:
    """Return the commit on which nothing was left to try at the last end, "" if there is none."""
    began = next((event.seq for event in reversed(reader.events_of(campaign.id, "campaign.state"))
                  if event.decoded(_StateChange).state == "running"), 0)
    ended = next((event for event in reader.events_of(campaign.id, "campaign.stop")
                  if event.seq > began), None)
    return "" if ended is None else ended.decoded(StopRecord).nothing_left_on


def _tip(reader: Reader, campaign: Campaign) -> str:
    """Return the provisional best's commit."""
    line = waiting_line.read(reader, campaign.id)
    return line[-1].commit if line else campaign.best_commit


def _timed(reader: Reader, campaign: str, kind: str, into: type[T]) -> tuple[tuple[float, T], ...]:
    return tuple((event.at, event.decoded(into)) for event in reader.events_of(campaign, kind))
