"""Turn metrics of any unit and direction into costs: a time as it is, a rate as time per unit.

Costs are microseconds where the unit is known; less is always better.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.benchmark.spec.command_target import CommandTarget, Direction, Metric

TIMES = {"ns": 1e-3, "us": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6,
         "seconds": 1e6, "milliseconds": 1e3, "microseconds": 1.0, "nanoseconds": 1e-3}
"""Microseconds in one of each unit."""
RATES = {"flops": ("TFLOP", 1e-12), "mflops": ("TFLOP", 1e-6), "gflops": ("TFLOP", 1e-3),
         "tflops": ("TFLOP", 1.0), "pflops": ("TFLOP", 1e3), "b/s": ("GB", 1e-9),
         "kb/s": ("GB", 1e-6), "mb/s": ("GB", 1e-3), "gb/s": ("GB", 1.0), "tb/s": ("GB", 1e3),
         "gib/s": ("GB", 1.073741824), "tib/s": ("GB", 1099.511627776)}
"""For each rate what it counts per second, and how many of those one unit is."""
ALIASES: dict[str, str] = {"gbps": "gb/s", "tbps": "tb/s", "mbps": "mb/s", **{
    f"{prefix}flop/s": f"{prefix}flops" for prefix in ("", "m", "g", "t", "p")}}
KNOWN = frozenset((*TIMES, *RATES, *ALIASES))
"""The names of units, in lower case."""
LOWER_WORDS = frozenset(("time", "times", "runtime", "walltime", "latency", "latencies", "elapsed",
                         "duration", "durations", "cycles", "delay", "delays"))
HIGHER_WORDS = frozenset(("throughput", "bandwidth", "speed", "speedup", "rate", "flops", "score"))
FAILURE_WORDS = frozenset(("err", "error", "errors", "miss", "misses", "loss", "drop", "fail",
                           "stall"))
"""Words that reverse a rate or a score: a name with one never says that higher is better."""
SECOND_WORDS = frozenset(("s", "sec", "second", "seconds"))
PER = "per"
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LETTERS = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"[A-Za-zµμ]+(?:/s(?:ec)?(?![A-Za-z]))?")
_PER = re.compile(r"([A-Za-z]\w*)/([A-Za-zµμ]+)")


@dataclass(frozen=True, kw_only=True)
class ResolvedMetric:
    """A metric whose unit is understood; `base` is the unit of its cost, or what a rate counts."""

    name: str
    is_rate: bool
    base: str
    factor: float
    weight: float

    def cost(self, value: float) -> float:
        """Return the cost of one row's number. Raises OverflowError for one out of range."""
        cost = 1e6 / (value * self.factor) if self.is_rate else value * self.factor
        if not 0 < cost < math.inf:
            raise OverflowError(f"{value} is out of range")
        return cost


def resolve(metric: Metric) -> ResolvedMetric:
    """Return the metric with unit and direction, by its name if not given. Raises ValueError."""
    unit = metric.unit or unit_in(metric.name)
    known = _known(unit)
    if known is None and metric.unit and metric.direction is None:
        raise ValueError(f"the unit {metric.unit!r} does not say which direction is better")
    if known is None:
        direction = metric.direction or direction_in(metric.name)
        if direction is None:
            raise ValueError("the name says neither a unit nor a direction")
        return ResolvedMetric(name=metric.name, is_rate=direction == "higher", factor=1.0,
                              base=unit or metric.name, weight=metric.weight)
    is_rate, base, factor = known
    if metric.direction is not None and (metric.direction == "higher") != is_rate:
        better = "higher" if is_rate else "lower"
        raise ValueError(f"{better} {unit} is better, not {metric.direction}")
    return ResolvedMetric(name=metric.name, is_rate=is_rate, base=base, factor=factor,
                          weight=metric.weight)


def unit_in(name: str) -> str:
    """Return the last word of a column's name that is a unit, or ""; `gb_per_s` is GB/s."""
    words = [part for token in _TOKEN.findall(name) for part in _parts(token)]
    for at in range(len(words) - 1, -1, -1):
        word, before = words[at], words[at - 1] if at else ""
        is_second = word.casefold() in SECOND_WORDS
        if before.casefold() == PER and (is_second or _folded(word) in TIMES):
            return f"{words[at - 2]}/{'s' if is_second else word}" if at > 1 else ""
        if _folded(word) == "s":
            if len(before) > 1 and _folded(f"{before}/s") in RATES:
                return f"{before}/s"
            if not at or at + 1 < len(words) or direction_in(name) == "higher":
                continue
        if _known(word) is not None:
            return word
    return ""


def direction_in(name: str) -> Direction | None:
    """Return the better direction by a name's words, None if no word says it or two disagree."""
    words = [part.casefold() for word in _LETTERS.findall(name) for part in _CAMEL.split(word)]
    counted = {word for at, word in enumerate(words) if not at or words[at - 1] != PER}
    is_per_second = any(first == PER and second in SECOND_WORDS
                        for first, second in itertools.pairwise(words))
    is_lower = bool(counted & LOWER_WORDS)
    is_higher = bool(counted & HIGHER_WORDS) or is_per_second
    if is_lower == is_higher or (is_higher and counted & FAILURE_WORDS):
        return None
    return "higher" if is_higher else "lower"


def _parts(token: str) -> list[str]:
    """Return a unit as it is, any other word split at its camel case."""
    parts = _CAMEL.split(token)
    return [token] if _known(token) is not None or "S" in parts else parts


def _known(unit: str) -> tuple[bool, str, float] | None:
    """Return whether a unit is a rate, its base and its factor; None for an unknown unit."""
    folded = _folded(unit)
    if folded in TIMES:
        return False, "us", TIMES[folded]
    if folded in RATES:
        base, factor = RATES[folded]
        return True, base, factor
    match = _PER.fullmatch(unit.strip())
    if match and (microseconds := TIMES.get(_folded(match[2]))):
        return True, match[1], 1e6 / microseconds
    return None


def _folded(unit: str) -> str:
    plain = unit.strip().casefold().replace("µ", "u").replace("μ", "u").replace(" ", "")
    return ALIASES.get(plain, plain)


class RowCost:
    """How the metrics of a row become its one cost: a step's sum, or their geometric mean."""

    def __init__(self, target: CommandTarget) -> None:
        self.metrics = tuple(resolve(metric) for metric in target.metrics)
        self.scored = tuple(metric for metric in self.metrics if metric.weight)
        """The metrics that enter the score; the others are shown only."""
        has_one_base = len({metric.base for metric in self.scored}) == 1
        self.is_step = target.combine == "step" or (target.combine == "auto" and has_one_base)

    def costs(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return each metric's cost."""
        return tuple(m.cost(v) for m, v in zip(self.metrics, values, strict=True))

    def combined(self, costs: Sequence[float]) -> float:
        """Return the one cost of a row."""
        weights = [metric.weight for metric in self.metrics]
        if self.is_step:
            return math.fsum(w * c for w, c in zip(weights, costs, strict=True))
        return math.exp(math.fsum(w * math.log(c) for w, c in zip(weights, costs, strict=True))
                        / math.fsum(weights))

    @property
    def per(self) -> str:
        """Return the amount whose time is the cost, such as GB; "" if the cost is a time itself."""
        bases = {metric.base for metric in self.scored
                 if metric.is_rate and metric.base != metric.name and metric.weight == 1}
        return bases.pop() if len(self.scored) == len(bases) == 1 else ""

    @property
    def note(self) -> str:
        """What `latency_us` means in a verdict on such a target."""
        parts = [_term(metric, self.is_step) for metric in self.scored]
        meaning = " + ".join(parts) if self.is_step else \
            f"the geometric mean of {', '.join(parts)}" if len(parts) > 1 else parts[0]
        return f"latency_us is {meaning}, as the benchmark reports it"


def _term(metric: ResolvedMetric, is_step: bool) -> str:
    cost = metric.name if not metric.is_rate else f"1 / {metric.name}" \
        if metric.base == metric.name else f"the time of 1 {metric.base} at its {metric.name}"
    return cost if metric.weight == 1 or not is_step else f"{metric.weight:g} x {cost}"
