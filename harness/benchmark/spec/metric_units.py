"""Metrics of any unit and direction as costs: a time is one, of a rate it is the time a unit takes.

Costs are microseconds where the unit is known. The logarithm of the incumbent's cost over the
candidate's is above zero where the candidate is better, whatever the column counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.benchmark.spec import metric_words
from harness.benchmark.spec.command_target import CommandTarget, Metric

TIMES = {"ns": 1e-3, "us": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "sec": 1e6,
         "seconds": 1e6, "milliseconds": 1e3, "microseconds": 1.0, "nanoseconds": 1e-3}
"""Microseconds in one of each."""
RATES = {"flops": ("TFLOP", 1e-12), "mflops": ("TFLOP", 1e-6), "gflops": ("TFLOP", 1e-3),
         "tflops": ("TFLOP", 1.0), "pflops": ("TFLOP", 1e3), "b/s": ("GB", 1e-9),
         "kb/s": ("GB", 1e-6), "mb/s": ("GB", 1e-3), "gb/s": ("GB", 1.0), "tb/s": ("GB", 1e3),
         "gib/s": ("GB", 1.073741824), "tib/s": ("GB", 1099.511627776)}
"""What is counted by the second, and how much of it one of each is."""
ALIASES: dict[str, str] = {"gbps": "gb/s", "tbps": "tb/s", "mbps": "mb/s", **{
    f"{prefix}flop/s": f"{prefix}flops" for prefix in ("", "m", "g", "t", "p")}}
_TOKEN = re.compile(r"[A-Za-zµμ]+(?:/s(?:ec)?(?![A-Za-z]))?")
_PER = re.compile(r"([A-Za-z]\w*)/([A-Za-zµμ]+)")


@dataclass(frozen=True, kw_only=True)
class ResolvedMetric:
    """A metric with its unit understood; `base` is what its cost is in, or the cost of."""

    name: str
    rate: bool
    base: str
    factor: float
    weight: float

    def cost(self, value: float) -> float:
        """Return what one row's number costs; raises OverflowError for one beyond measure."""
        cost = 1e6 / (value * self.factor) if self.rate else value * self.factor
        if not 0 < cost < math.inf:
            raise OverflowError(f"{value} is beyond measure")
        return cost


def resolve(metric: Metric) -> ResolvedMetric:
    """Return the metric with unit and direction filled in. Raises ValueError in a few words.

    A name without a unit says its direction by its words, or the metric must.
    """
    unit = metric.unit or unit_in(metric.name)
    known = _known(unit)
    if known is None and metric.unit and metric.direction is None:
        raise ValueError(f"the unit {metric.unit!r} does not say which direction is better")
    if known is None:
        direction = metric.direction or metric_words.direction(metric.name)
        if direction is None:
            raise ValueError("the name says no unit and no direction")
        return ResolvedMetric(name=metric.name, rate=direction == "higher", factor=1.0,
                        base=unit or metric.name, weight=metric.weight)
    rate, base, factor = known
    if metric.direction is not None and (metric.direction == "higher") != rate:
        better = "more" if rate else "less"
        raise ValueError(f"of {unit} {better} is better, not {metric.direction}")
    return ResolvedMetric(
        name=metric.name, rate=rate, base=base, factor=factor, weight=metric.weight
    )


def metric_help(metric: Metric) -> str:
    """Say what to write where `resolve` refuses a metric."""
    return ("units are ns, us, ms, s, GFLOPS, TFLOPS, GB/s, or any with a direction: "
            f"{{name: {metric.name}, direction: lower}}, or higher")


def unit_in(name: str) -> str:
    """Return the last word of a column's name that is a unit, or nothing; `gb_per_s` is GB/s."""
    words = [part for token in _TOKEN.findall(name) for part in _parts(token)]
    for at in range(len(words) - 1, -1, -1):
        word, before = words[at], words[at - 1] if at else ""
        second = word.casefold() in metric_words.SECONDS
        if before.casefold() == metric_words.PER and (second or _folded(word) in TIMES):
            return f"{words[at - 2]}/{'s' if second else word}" if at > 1 else ""
        if _folded(word) == "s":
            if len(before) > 1 and _folded(f"{before}/s") in RATES:
                return f"{before}/s"
            if not at or at + 1 < len(words) or metric_words.direction(name) == "higher":
                continue
        if _known(word) is not None:
            return word
    return ""


def _parts(token: str) -> list[str]:
    """Return a word as it is if it is a unit, else its parts as camel case has them."""
    parts = metric_words.split(token)
    return [token] if _known(token) is not None or "S" in parts else parts


def _known(unit: str) -> tuple[bool, str, float] | None:
    folded = _folded(unit)
    if folded in TIMES:
        return False, "us", TIMES[folded]
    if folded in RATES:
        base, factor = RATES[folded]
        return True, base, factor
    counted = _PER.fullmatch(unit.strip())
    if counted and (by := TIMES.get(_folded(counted[2]))):
        return True, counted[1], 1e6 / by
    return None


def _folded(unit: str) -> str:
    plain = unit.strip().casefold().replace("µ", "u").replace("μ", "u").replace(" ", "")
    return ALIASES.get(plain, plain)


class RowCost:
    """How the metrics of a row become its one cost: the step's, or their geometric mean."""

    def __init__(self, target: CommandTarget) -> None:
        self.metrics = tuple(resolve(metric) for metric in target.metrics)
        self.scored = tuple(metric for metric in self.metrics if metric.weight)
        """Those that enter the score; the others are shown."""
        alike = len({metric.base for metric in self.scored}) == 1
        self.step = target.combine == "step" or (target.combine == "auto" and alike)

    def costs(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return each metric's cost."""
        return tuple(m.cost(v) for m, v in zip(self.metrics, values, strict=True))

    def combined(self, costs: Sequence[float]) -> float:
        """Return the one cost of a row."""
        weights = [metric.weight for metric in self.metrics]
        if self.step:
            return math.fsum(w * c for w, c in zip(weights, costs, strict=True))
        return math.exp(math.fsum(w * math.log(c) for w, c in zip(weights, costs, strict=True))
                        / math.fsum(weights))

    @property
    def words(self) -> str:
        """What `latency_us` is in a verdict on such a target."""
        parts = [_share(metric, self.step) for metric in self.scored]
        told = " + ".join(parts) if self.step else \
            f"the geometric mean of {', '.join(parts)}" if len(parts) > 1 else parts[0]
        return f"latency_us is {told}, as the benchmark reports it"


def _share(metric: ResolvedMetric, step: bool) -> str:
    cost = f"us per {metric.base} by {metric.name}" if metric.rate else metric.name
    return cost if metric.weight == 1 or not step else f"{metric.weight:g} x {cost}"
