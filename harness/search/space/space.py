"""A space of configurations: what knobs may be, what is required of them, what is simple."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.search.space.constraints import Requirement
from harness.search.space.knobs import Knob, Value

Config = dict[str, Value]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The knobs that may move, their choices in the order in which they were declared.

    `requires` are expressions over knobs that a legal configuration fulfils.
    """

    choices: dict[str, tuple[Value, ...]]
    default: Config
    requires: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.choices.values())

    def key(self, config: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return a configuration as a tuple, so that it can be remembered."""
        return tuple(config[name] for name in self.choices)

    def holds(self, config: Mapping[str, object]) -> bool:
        """Return whether a configuration is one of its choices, of all knobs and no others."""
        return config.keys() == self.choices.keys() and all(
            value in self.choices[name] for name, value in config.items())


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a configuration of the same kernel once came to; advice for a search, never a result.

    Latencies (microseconds) compare within one `source`, which names the device and the config
    classes of the recording; None is a configuration that failed.
    """

    source: str
    config: Config
    latency_us: float | None


def simplicity(space: Space, config: Mapping[str, Value]) -> tuple[int, int]:
    """Return how far a configuration is from the simplest: less is simpler.

    First how many knobs are away from the default, then how large their values are, as the sum of
    their ranks among the knobs' choices in rising order (words count as they are declared).
    """
    away = sum(config[name] != value for name, value in space.default.items())
    return away, sum(_rank(values, config[name]) for name, values in space.choices.items())


def _rank(choices: Sequence[Value], value: Value) -> int:
    numbers = [one for one in choices if not isinstance(one, str)]
    if isinstance(value, str) or len(numbers) < len(choices):
        return choices.index(value)
    return sum(one < value for one in numbers)


def of_knobs(knobs: Sequence[Knob], only: Sequence[str] = (),
             required: Sequence[Requirement] = ()) -> Space:
    """Return the space of some knobs (all, when `only` is empty), less those that are reserved.

    What is `required` of knobs that do not move is required of the others, as these stand. Raises
    InputError if none is left.
    """
    chosen = [knob for knob in knobs if not knob.reserved and (not only or knob.name in only)]
    unknown = set(only) - {knob.name for knob in knobs}
    if unknown:
        raise InputError(f"no knob {sorted(unknown)[0]!r} in the source",
                         fix=f"it has {', '.join(k.name for k in knobs) or 'none'}")
    held = [knob.name for knob in knobs if knob.reserved and (knob.name in only or not chosen)]
    if held:
        raise InputError(f"knob {held[0]!r} is reserved: it is not moved",
                         fix="take the word `reserved` away")
    if not chosen:
        raise InputError("the source declares no knob",
                         fix="add a comment such as: kopt: knob TILE in [16, 32, 64]")
    default = {knob.name: knob.value for knob in chosen}
    still = {knob.name: knob.value for knob in knobs if knob.name not in default}
    return Space(choices={knob.name: knob.choices for knob in chosen}, default=default,
                 requires=tuple(one.bound(still).text for one in required))
