"""What the files for people are made from: a campaign's journal, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from engine import history
from engine.history import Past
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Event, Slot
from harness.plan import Score

T = TypeVar("T")


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """What a `campaign.stop` event holds; `wall_s`, `trials` and `cost` are of all engines."""

    reason: str
    wall_s: float = 0.0
    trials: int = 0
    cost: float = 0.0
    waiting: int = 0


class Stagnation(msgspec.Struct, frozen=True, kw_only=True):
    """What a `stagnation` event holds: the review that a round began with."""

    round: int
    depth: str
    rollbacks: int
    demands: str
    directions: tuple[str, ...]


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign as its journal tells it; slots, bottlenecks and reviews are by round."""

    campaign: str
    past: Past
    slots: dict[int, Sequence[Slot]]
    bottlenecks: dict[int, Sequence[Bottleneck]]
    reviews: dict[int, Stagnation]
    stops: tuple[tuple[float, Stop], ...]
    """When, and what was recorded."""


def read(reader: Reader, campaign: str, score: Score) -> Story:
    """Read a campaign's story; raises LookupError if there is no such campaign."""
    past = history.read(reader, campaign, score)
    reviews = [_payload(event, Stagnation) for event in reader.events_of(campaign, "stagnation")]
    return Story(
        campaign=campaign, past=past,
        slots={r.n: reader.slots(campaign, r.n) for r in past.rounds},
        bottlenecks={r.n: reader.bottlenecks(campaign, r.n) for r in past.rounds},
        reviews={review.round: review for review in reviews},
        stops=tuple((event.at, _payload(event, Stop))
                    for event in reader.events_of(campaign, "campaign.stop")))


def _payload(event: Event, kind: type[T]) -> T:
    return msgspec.json.decode(event.payload, type=kind)
