"""Parse the manifest's `performance_target`, and tell whether the best has reached it for sure.

`1.5x`, `20%` and `20% less` are relative to the baseline; `850 us`, `>500 TFLOPS`, `1.2 TB/s` and
`>60% of peak` are absolute. Any other text is a note for people. So is a goal that verdicts on the
target cannot show, such as a benchmark's share of a peak.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from engine.manifest import goal_columns
from harness.benchmark.spec.command_target import CommandTarget
from harness.target import Target
from harness.verdict import Verdict

Kind = Literal["speedup", "latency", "efficiency", "compute", "bandwidth"]

_SIGN = re.compile(r"^\s*(?:>=?|<=?|≥|≤|=|at (?:least|most)|under|below|above|over)?\s*",
                   re.IGNORECASE)
_NUMBER = r"(?P<value>[+-]?\d+(?:\.\d+)?)\s*"
_LATENCY_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_RATE = {"g": 1.0, "t": 1e3}
_FORMS = tuple((kind, re.compile(_NUMBER + rest, re.IGNORECASE)) for kind, rest in (
    ("speedup", r"[x\u00d7](?: faster)?"),
    ("less", r"%\s*(?:less|lower|shorter)(?: time| latency)?"),
    ("efficiency", r"%\s*(?:of (?:the )?)?(?:roofline|peak(?: efficiency)?|efficiency)"),
    ("gain", r"%(?:\s*(?:faster|more|speedup))?"),
    ("latency", r"(?P<unit>ns|us|µs|μs|ms|s)"),
    ("compute", r"(?P<unit>[gt])flop(?:s|/s)"),
    ("bandwidth", r"(?P<unit>[gt])b(?:ps|/s)"),
))


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that can be checked; `value` is a ratio, us, percent, GFLOP/s or GB/s by `kind`."""

    kind: Kind
    value: float
    text: str


def parse_goal(text: str) -> Goal | None:
    """Return the goal that a performance target states, None if it states no such number."""
    goal_text = _SIGN.sub("", text.strip(), count=1).strip().rstrip(".")
    for form, pattern in _FORMS:
        if match := pattern.fullmatch(goal_text):
            return _goal(form, float(match["value"]), match.groupdict().get("unit") or "", text)
    return None


def _goal(form: str, value: float, unit: str, text: str) -> Goal | None:
    kind: Kind = "speedup"
    match form:
        case "gain" if value < 0:  # -20% means 20 % less time
            value = 1 / (1 + value / 100) if value > -100 else 0.0
        case "gain":
            value = 1 + value / 100
        case "less":
            value = 1 / (1 - value / 100) if 0 < value < 100 else 0.0
        case "latency":
            kind, value = "latency", value * _LATENCY_US[unit.lower()]
        case "efficiency":
            kind, value = "efficiency", value if value <= 100 else 0.0
        case "compute":
            kind, value = "compute", value * _RATE[unit.lower()]
        case "bandwidth":
            kind, value = "bandwidth", value * _RATE[unit.lower()]
    if value <= (1.0 if kind == "speedup" else 0.0):
        return None
    return Goal(kind=kind, value=value, text=text.strip())


def is_checkable(goal: Goal, target: Target | CommandTarget) -> bool:
    """Return whether verdicts on a target can show that a goal is reached."""
    if isinstance(target, CommandTarget) and goal.kind != "speedup":
        return goal_columns.has_metric(goal.kind, target)
    return goal.kind != "compute" or isinstance(target, CommandTarget) or bool(target.flops)


def reached_by(goal: Goal, best: Verdict | None, target: Target | CommandTarget) -> str:
    """Return what the best has reached for sure, "" if less than the goal.

    `best` is its verdict against the baseline. The lower end of the speedup's interval counts; an
    absolute value is reduced by the same share. For a benchmark, see `goal_columns`.
    """
    if best is None or best.latency_us is None or not best.speedup or best.speedup_low is None:
        return ""
    certainty = best.speedup_low / best.speedup
    match goal.kind:
        case "speedup":
            value, unit = best.speedup_low, "x"
        case "latency":
            best_us = best.latency_us if isinstance(target, Target) else \
                goal_columns.measured_value("latency", best, target)
            if best_us is None:
                return ""
            latency_us = best_us / certainty
            return f"at most {latency_us:.4g} us" if latency_us <= goal.value else ""
        case "efficiency":
            shares = [row.pct_of_roofline for row in best.rows]
            known = [share for share in shares if share is not None]
            if not known or len(known) < len(shares):
                return ""
            value, unit = min(known) * certainty, "% of the roofline"
        case "compute" | "bandwidth":
            rate = _rate(goal.kind, best, target) if isinstance(target, Target) else \
                goal_columns.measured_value(goal.kind, best, target)
            if rate is None:
                return ""
            value, unit = rate * certainty, " GFLOP/s" if goal.kind == "compute" else " GB/s"
    return f"at least {value:.4g}{unit}" if value >= goal.value else ""


def _rate(kind: Kind, best: Verdict, target: Target) -> float | None:
    """Return the weighted geometric mean over a kernel's classes, in GFLOP/s or GB/s.

    None if the task does not say how much work a class is.
    """
    total = weight = 0.0
    for row in best.rows:
        flops, moved = target.work(target.config_class(row.config_class))
        work = flops if kind == "compute" else moved
        if not work or row.latency_us is None:
            return None
        total += row.weight * math.log(work / row.latency_us / 1e3)
        weight += row.weight
    return math.exp(total / weight) if weight else None
