"""What a round's plan depends on, and how many of its slots are planned."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from engine.knowledge import strategy_table
from engine.knowledge.strategy_record import NO_RECORD, StrategyRecord
from engine.knowledge.strategy_table import StrategyPlace
from engine.manifest.pool_schema import PoolSpec
from engine.planning import stagnation
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.stagnation import (
    DIRECTIONS,
    PlannedIdea,
    SearchDirection,
    StagnationReview,
    TriedDirections,
)
from engine.planning.survey import Survey
from engine.task import GLOBAL
from engine.transformations.transformation_registry import ApplicableChange

IMPLAUSIBLE = 100.0
"""Speedups of this or more do not count as successes, whatever was measured."""
MAX_TRIALS = 10_000


class SlotKindStats(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of slot did in the last round: speedups of its candidates, slots it had."""

    speedups: tuple[float, ...] = ()
    slots: int = 0

    @property
    def score(self) -> float:
        """Best plausible speedup times plausible speedups per slot; 1 if there is none."""
        plausible = [s for s in self.speedups if 0 < s < IMPLAUSIBLE]
        if not plausible or not self.slots:
            return 1.0
        return max(plausible) * len(plausible) / self.slots


class PlanInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a round's plan depends on."""

    campaign: str
    round: int
    slots: int
    pool: PoolSpec
    survey: Survey
    planned: SlotKindStats = SlotKindStats()
    fixed: SlotKindStats = SlotKindStats()
    review: StagnationReview | None = None
    tried: TriedDirections = TriedDirections()
    """The directions that slots have followed on this best."""
    suggested: tuple[PlannedIdea, ...] = ()
    """What a model suggests to try."""
    model_note: str = ""
    """The outcome of asking a model for ideas, "" if none was asked."""
    causes: tuple[str, ...] = ()
    """What a model names as the causes of the best's times."""
    analysis: str = ""
    """The outcome of asking for causes, "" if no model was asked."""
    tips: tuple[str, ...] = ()
    """Lessons of earlier campaigns, the newest last."""
    failures: tuple[str, ...] = ()
    """Promising changes that were rejected, with the reason, the newest first."""
    place: StrategyPlace = StrategyPlace()
    """The op's class, the language and the kind of device, for the table of strategies."""
    records: Mapping[str, StrategyRecord] = {}
    """How often each row, transformation and template has helped on this card."""
    brief: str = ""
    """What goes into agents' prompts, as Markdown."""
    translations: Mapping[str, str] = {}
    """Further text for the prompts of rewrites, as Markdown, by language."""
    inbox_slots: Mapping[str, str] = {}
    """The slots that an interrupted round has given to patches, by file name."""
    may_split: bool = False
    """Whether classes may get their own knobs: there are several, and a gain was kept before."""

    @property
    def trials(self) -> int:
        """Trials of one search; a review widens it."""
        width = 1 if self.review is None else self.review.width
        return min(MAX_TRIALS, self.pool.trials * width)

    @property
    def may_search(self) -> bool:
        return bool(self.survey.knobs) and "search" in self.pool.backends

    @property
    def new_changes(self) -> list[ApplicableChange]:
        """The transformations that no slot has made on this best, the most promising first.

        Those that lost on an earlier best come last. The others are ordered by how often they were
        kept on this card, then by the bottleneck whose strategies name them.
        """
        if "transform" not in self.pool.backends:
            return []
        return sorted((change for change in self.survey.changes
                       if change.option not in self.tried.transforms),
                      key=lambda change: (change.option in self.tried.lost_transforms,
                                          -self.records.get(change.name, NO_RECORD).chance,
                                          self.strategy_of(change.name)[:2]))

    def strategy_of(self, name: str) -> tuple[int, int, str]:
        """Return the rank of the first bottleneck whose strategies name a transformation, its
        position among the transformations that they name, and the key of the strategy.

        Without one, the rank is that after the last bottleneck and the key is "".
        """
        for rank, tunable in enumerate(self.survey.bottlenecks):
            listed = [(transformation, row.key) for row in strategy_table.against(
                tunable.bottleneck.limiter, self.place) for transformation in row.transformations]
            for at, (transformation, key) in enumerate(listed):
                if transformation == name:
                    return rank, at, key
        return len(self.survey.bottlenecks), 0, ""

    @property
    def new_directions(self) -> list[SearchDirection]:
        """The search directions that no slot has followed on this best."""
        return self.directions(self.tried)

    def directions(self, tried: TriedDirections) -> list[SearchDirection]:
        """Return the directions that differ from `tried` ones and from that of the fixed slot,
        which moves all knobs together.
        """
        if not self.may_search:
            return []
        depth = "review" if self.review is None else self.review.depth
        every = {knob.name for knob in self.survey.knobs}
        return [direction for direction in stagnation.new_directions(
            self.survey.bottlenecks, tried, depth) if set(direction.knobs) != every]

    def seed(self, slot: str) -> int:
        """Return the slot's seed, the same when the round is run again after a crash."""
        return zlib.crc32(f"{self.campaign}/{self.round}/{slot}".encode())

    def scope(self, tunable: TunableBottleneck | None) -> str:
        """Return a bottleneck's config class; GLOBAL without one, or if only one class has any."""
        classes = {tunable.bottleneck.config_class for tunable in self.survey.bottlenecks} - {""}
        if tunable is None or len(classes) < 2:
            return GLOBAL
        return tunable.bottleneck.config_class or GLOBAL


class PlanWeights(msgspec.Struct, frozen=True):
    """The scores of planned slots and of all others in the last round.

    `reason` is "weights" if they decide how many slots are planned, else what decides.
    """

    planned: float
    fixed: float
    reason: str

    @classmethod
    def of(cls, inputs: PlanInputs) -> PlanWeights:
        reason = "weights"
        if inputs.pool.mode != "mixed" or inputs.slots <= 1:
            reason = f"mode {inputs.pool.mode}" if inputs.slots > 1 else "one slot"
        elif inputs.round <= 2 or inputs.slots <= 2:
            reason = "half of the slots planned if the others have work"
        return cls(inputs.planned.score, inputs.fixed.score, reason)

    def __str__(self) -> str:
        return self.reason if self.reason != "weights" else \
            f"weights: planned {self.planned:.2f}, others {self.fixed:.2f}"


def planned_share(inputs: PlanInputs) -> int:
    """Return how many slots are planned; the fixed slot always stays.

    The pool's mode decides unless it is "mixed". Then half of them are planned in round 2, the
    first after the baseline, and where there are only two; otherwise each kind's score in the last
    round decides. A review gets at least DIRECTIONS.
    """
    n = inputs.slots
    if inputs.pool.mode == "fixed" or n <= 1:
        return 0
    if inputs.pool.mode == "planned":
        return n - 1
    least = 1 if inputs.review is None else DIRECTIONS
    weights = PlanWeights.of(inputs)
    share = round(n * weights.planned / (weights.planned + weights.fixed)) \
        if weights.reason == "weights" else n // 2
    return min(n - 1, max(least, share))
