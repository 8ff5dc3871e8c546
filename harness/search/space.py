"""A space of configurations: knobs and their choices, and the points in between."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.knobs import Knob, Value

Config = dict[str, Value]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The knobs that may move, their choices in the order in which they were declared."""

    choices: dict[str, tuple[Value, ...]]
    default: Config

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.choices.values())

    def key(self, config: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return a configuration as a tuple, so that it can be remembered."""
        return tuple(config[name] for name in self.choices)

    def random(self, rng: random.Random) -> Config:
        return {name: rng.choice(values) for name, values in self.choices.items()}

    def neighbours(self, config: Mapping[str, Value]) -> list[Config]:
        """Return every configuration that differs in one knob, the nearest choices first."""
        near: list[tuple[int, Config]] = []
        for name, values in self.choices.items():
            here = values.index(config[name])
            near += [(abs(i - here), {**config, name: value})
                     for i, value in enumerate(values) if i != here]
        return [candidate for _, candidate in sorted(near, key=lambda pair: pair[0])]


def of_knobs(knobs: Sequence[Knob], only: Sequence[str] = ()) -> Space:
    """Return the space of some knobs (all, when `only` is empty). Raises InputError if none."""
    chosen = [knob for knob in knobs if not only or knob.name in only]
    unknown = set(only) - {knob.name for knob in knobs}
    if unknown:
        raise InputError(f"no knob {sorted(unknown)[0]!r} in the source",
                         fix=f"it has {', '.join(k.name for k in knobs) or 'none'}")
    if not chosen:
        raise InputError("the source declares no knob",
                         fix="add a comment such as: kopt: knob TILE in [16, 32, 64]")
    return Space(choices={knob.name: knob.choices for knob in chosen},
                 default={knob.name: knob.value for knob in chosen})
