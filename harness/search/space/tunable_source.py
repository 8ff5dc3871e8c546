"""A kernel's source as a search sees it, and the space of its configurations."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputError
from harness.search.space import knobs
from harness.search.space.constraints import Requirement
from harness.search.space.knobs import CheckedConfig, Knob
from harness.verdict import Config, Value

MOST_LISTED = 5000
"""The configurations of a space with more combinations than this are not listed."""


@dataclass(frozen=True, kw_only=True)
class TunableSource:
    """A source that was read once; it checks configurations and applies them to its text."""

    path: str
    """The source's path inside its project."""
    text: str
    language: str
    knobs: tuple[Knob, ...]
    requirements: tuple[Requirement, ...]

    @classmethod
    def parse(cls, text: str, *, language: str, path: str = "") -> TunableSource:
        """Find knobs and requirements. Raises InputError for an invalid or an unmet one."""
        declared = knobs.find(text, language=language, where=path)
        return cls(path=path, text=text, language=language, knobs=declared,
                   requirements=knobs.requirements(text, declared, path))

    @classmethod
    def read(cls, tree: Path, path: str, *, language: str) -> TunableSource:
        """Read and parse the source of a tree. Raises InputError."""
        return cls.parse(knobs.read(tree / path), language=language, path=path)

    def space(self, only: Sequence[str] = ()) -> Space:
        """Return the space of the knobs in `only`, of all if it is empty. Raises as `of_knobs`."""
        return of_knobs(self.knobs, only, self.requirements)

    def check(self, config: Mapping[str, object]) -> CheckedConfig:
        """Compare a configuration with the knobs and requirements; never raises."""
        return knobs.check(self.knobs, config, self.requirements)

    def starts(self, only: Sequence[str] = ()) -> tuple[Config, ...]:
        """Return the starting points that the source names, without invalid ones."""
        space = self.space(only)
        configs = [space.default | {name: value for name, value in checked.config.items()
                                    if name in space.choices}
                   for checked in map(self.check, knobs.starts(self.text)) if not checked.refusal]
        return tuple(config for config in configs if not self.check(config).refusal)

    def configurations(self, only: Sequence[str], most: int) -> tuple[Config, ...]:
        """Return the valid configurations, the default first; () if there are too many.

        That is: more than `most`, or more than MOST_LISTED combinations, valid or not.
        """
        space = self.space(only)
        if space.size > MOST_LISTED:
            return ()
        valid = [config for values in itertools.product(*space.choices.values())
                 if not self.check(config := dict(zip(space.choices, values, strict=True))).refusal]
        valid.sort(key=lambda config: config != space.default)
        return tuple(valid) if len(valid) <= most else ()

    def apply(self, config: Mapping[str, Value]) -> str:
        """Return the text with the named knobs set. Raises InputError for values not allowed."""
        return knobs.apply(self.text, config, language=self.language)

    def configured(self, config: Mapping[str, object]) -> str | None:
        """Return the text with a configuration set, None if the configuration is refused."""
        checked = self.check(config)
        return None if checked.refusal else self.apply(checked.config)

    def kernel_id(self, op: str) -> str:
        """Return the short name of the kernel, the same for all values of its knobs."""
        return knobs.identity(op, self.text, language=self.language)

    def candidate_id(self, incumbent_tree: str, config: Mapping[str, Value]) -> str:
        """Return a candidate's short name, the same for the same text on the same tree."""
        text = self.configured(config)
        content = repr(sorted(config.items())) if text is None else text
        key = f"{incumbent_tree}\n{self.path}\0{content}"
        return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The variable knobs, their choices in declared order, and the requirements over knobs."""

    choices: dict[str, tuple[Value, ...]]
    default: Config
    requires: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.choices.values())

    def holds(self, config: Mapping[str, object]) -> bool:
        """Return whether a configuration sets exactly these knobs, each to one of its choices."""
        return config.keys() == self.choices.keys() and all(
            value in self.choices[name] for name, value in config.items())


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A recorded trial that advises a search.

    `latency_us` is None if the trial failed; only latencies of the same `source` are comparable.
    """

    source: str
    config: Config
    latency_us: float | None


def complexity(space: Space, config: Mapping[str, Value]) -> tuple[int, int]:
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
    """Return the space of the knobs in `only`, of all unreserved ones if it is empty.

    Raises InputError for an unknown or a reserved knob, or if there is no knob.
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
