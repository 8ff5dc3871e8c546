"""The trials of a loop and its result. Trials are screening values, never verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.devices.device import Device
from harness.errors import InputError, refuse
from harness.tasks.target import OF_CARD
from harness.verdict import Config, Correctness, LatencyKind, Tag

TAGS: Mapping[Correctness, Tag] = {"PASS": "tried", "FAIL": "revert", "REJECTED": "rejected"}
"""The tag of a trial that is not kept."""
MOST_TRIALS = 100_000
"""Trials of one loop."""


@dataclass(frozen=True, kw_only=True)
class Screened:
    """The result of screening one configuration.

    `reason` says why it failed, or why no latency is shown although it is correct and was timed.
    """

    correctness: Correctness
    reason: str = ""
    log_ratio: float | None = None
    latency_us: float | None = None
    latency_kind: LatencyKind | None = None
    roofline_us: float | None = None
    pct_of_roofline: float | None = None
    by_class: dict[str, float] = field(default_factory=dict)
    """The log ratio of each config class, where a benchmark reports them."""


@dataclass(frozen=True, kw_only=True)
class Trial(Screened):
    """One tried configuration. Building one that breaks an honesty rule raises ValueError.

    `log_ratio` is ln(latency of the initial source / its own), timed in alternation; `latency_us`
    and `roofline_us` are weighted geometric means over the config classes. `candidate_id`
    identifies the source with the configuration set, `kernel_id` the kernel with any configuration.
    """

    number: int
    config: Config
    tag: Tag
    candidate_id: str = ""
    kernel_id: str = ""
    at: str = ""
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        us, ratio, is_predicted = self.latency_us, self.log_ratio, self.latency_kind == "predicted"
        refuse(
            (us is not None and not self.correct, "only a correct trial has a latency"),
            ((us is None) != (self.latency_kind is None), "a latency and its kind come together"),
            (us is not None and not 0 < us < math.inf, "a latency is a positive number"),
            (ratio is not None and not math.isfinite(ratio), "a ratio is a number"),
            (ratio is not None and is_predicted, "only what was measured has a ratio"),
            (self.kept and (not self.correct or self.withheld),
             "only a correct trial with a valid latency is kept"),
            (self.kept and is_predicted, "nothing is kept on a prediction"))

    @property
    def correct(self) -> bool:
        return self.correctness == "PASS"

    @property
    def kept(self) -> bool:
        return self.tag == "kept"

    @property
    def withheld(self) -> bool:
        """Whether its latency was rejected as impossibly short."""
        return self.correct and self.latency_us is None and bool(self.reason)


@dataclass(frozen=True, kw_only=True)
class ConfigRows:
    """The rows of one config class: their cells in the result's `columns`."""

    name: str
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ClassGain:
    """A configuration's gain in a class: ln(latency of the common best / its own).

    `stderr` is that of `pairs` pairs of new runs; None for a screening value.
    """

    config_class: str
    gain: float
    stderr: float | None = None
    pairs: int = 1

    @property
    def sure(self) -> float:
        """The gain minus twice its standard error; minus infinity for a screening value."""
        return -math.inf if self.stderr is None else self.gain - 2 * self.stderr


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A configuration that may beat the common best in some class, with its gain in each class."""

    config: Config
    gains: tuple[ClassGain, ...]

    def gain_in(self, config_class: str) -> ClassGain | None:
        """Return its gain in a class, None where it was not measured."""
        return next((each for each in self.gains if each.config_class == config_class), None)


@dataclass(frozen=True, kw_only=True)
class LoopResult:
    """The result of a loop: the best configuration, and the whole source with it set.

    `earlier` counts the trials recorded by previous runs. For a benchmark, `columns` distinguish
    the rows of `classes`; `contenders`, with the initial configuration among them, are compared
    with `best` in each class.
    """

    best: Config
    log_ratio: float | None
    source: str
    trials: tuple[Trial, ...]
    space_size: int
    earlier: int = 0
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    classes: tuple[ConfigRows, ...] = ()
    contenders: tuple[Contender, ...] = ()

    def best_in(self, config_class: str) -> tuple[Config, ClassGain]:
        """Return the best configuration of a class, and its gain over the common best there."""
        gains = [(each.config, class_gain) for each in self.contenders
                 if (class_gain := each.gain_in(config_class)) is not None and class_gain.gain > 0]
        return max(gains, key=lambda pair: pair[1].gain,
                   default=(self.best, ClassGain(config_class=config_class, gain=0.0, stderr=0.0)))


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """What to search: a tree, a budget of trials, a seed, and the knobs to vary (empty: all).

    `record` is the folder of the loop's log, "" for none; `fresh` moves an old one away. `corpus`
    is the file of all measured trials, which advise the search.
    """

    tree: str
    reference: str
    budget: int = 24
    seed: int = 0
    only: tuple[str, ...] = ()
    record: str = ""
    fresh: bool = False
    corpus: str = ""

    def check(self) -> None:
        """Raise InputError for a budget or a seed that no loop can have."""
        if not 0 < self.budget <= MOST_TRIALS:
            raise InputError(f"a loop needs a budget of 1 to {MOST_TRIALS} trials")
        if self.seed < 0:
            raise InputError("a seed is a number from 0 on")


def latency_kind(device: Device, language: str) -> LatencyKind | None:
    """Return the kind of a latency from this device; None where nothing can be timed."""
    if device.kind != "cpu":
        return "measured-gpu"
    return None if language == "triton" or language in OF_CARD else "measured-cpu"
