"""A space of configurations: choices, requirements, and which configuration is simpler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.search.space.constraints import Requirement
from harness.search.space.knobs import Knob
from harness.trial_fields import Config, Value


@dataclass(frozen=True, kw_only=True)
class Space:
    """The variable knobs and their choices, in the order of their declaration.

    `requires` are expressions over knobs that every legal configuration fulfils.
    """

    choices: dict[str, tuple[Value, ...]]
    default: Config
    requires: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.choices.values())

    def key(self, config: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return a configuration as a hashable tuple."""
        return tuple(config[name] for name in self.choices)

    def holds(self, config: Mapping[str, object]) -> bool:
        """Return whether a configuration sets exactly these knobs, each to one of its choices."""
        return config.keys() == self.choices.keys() and all(
            value in self.choices[name] for name, value in config.items())


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A recorded result of a configuration of the same kernel: advice for a search, not a result.

    Latencies (microseconds) are comparable within one `source`, which names the device and the
    config classes of the recording; None is a failed configuration.
    """

    source: str
    config: Config
    latency_us: float | None


def simplicity(space: Space, config: Mapping[str, Value]) -> tuple[int, int]:
    """Return how complex a configuration is: a smaller tuple is simpler.

    First the number of knobs that differ from the default, then the sum of the values' ranks among
    their choices in rising order (words rank in the order of their declaration).
    """
    away = sum(config[name] != value for name, value in space.default.items())
    return away, sum(_rank(values, config[name]) for name, values in space.choices.items())


def _rank(choices: Sequence[Value], value: Value) -> int:
    numbers = [choice for choice in choices if not isinstance(choice, str)]
    if isinstance(value, str) or len(numbers) < len(choices):
        return choices.index(value)
    return sum(number < value for number in numbers)


def of_knobs(knobs: Sequence[Knob], only: Sequence[str] = (),
             required: Sequence[Requirement] = ()) -> Space:
    """Return the space of some knobs (all if `only` is empty), without reserved ones.

    Fixed knobs are replaced by their values in the requirements. Raises InputError if no knob is
    left.
    """
    chosen = [knob for knob in knobs if not knob.reserved and (not only or knob.name in only)]
    unknown = set(only) - {knob.name for knob in knobs}
    if unknown:
        raise InputError(f"no knob {sorted(unknown)[0]!r} in the source",
                         fix=f"it has {', '.join(k.name for k in knobs) or 'none'}")
    reserved = [knob.name for knob in knobs if knob.reserved and (knob.name in only or not chosen)]
    if reserved:
        raise InputError(f"knob {reserved[0]!r} is reserved: it cannot be searched",
                         fix="remove the word `reserved`")
    if not chosen:
        raise InputError("the source declares no knob",
                         fix="add a comment such as: kopt: knob TILE in [16, 32, 64]")
    default = {knob.name: knob.value for knob in chosen}
    fixed = {knob.name: knob.value for knob in knobs if knob.name not in default}
    return Space(choices={knob.name: knob.choices for knob in chosen}, default=default,
                 requires=tuple(each.bound(fixed).text for each in required))
