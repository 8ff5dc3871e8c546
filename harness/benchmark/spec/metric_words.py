"""Which direction of a metric is better by the words of its name, where these hold no unit."""

from __future__ import annotations

import itertools
import re

from harness.benchmark.spec.command_target import Direction

LOWER = frozenset(("time", "times", "runtime", "walltime", "latency", "latencies", "elapsed",
                   "duration", "durations", "cycles", "delay", "delays"))
HIGHER = frozenset(("throughput", "bandwidth", "speed", "speedup", "rate", "flops", "score"))
LOST = frozenset(("err", "error", "errors", "miss", "misses", "loss", "drop", "fail", "stall"))
"""Words that turn a rate or a score round: with them neither is read."""
SECONDS = frozenset(("s", "sec", "second", "seconds"))
PER = "per"
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W\d_]+")


def split(word: str) -> list[str]:
    """Return `kernel`, `Time` and `Us` of `kernelTimeUs`."""
    return _CAMEL.split(word)


def words(name: str) -> list[str]:
    """Return the words of a name, small; what is no letter, and camel case, parts them."""
    return [part.casefold() for word in _WORD.findall(name) for part in split(word)]


def direction(name: str) -> Direction | None:
    """Return which direction is better, or None where no word says it, or two disagree."""
    said = words(name)
    counted = {word for at, word in enumerate(said) if not at or said[at - 1] != PER}
    by_second = any(one == PER and two in SECONDS for one, two in itertools.pairwise(said))
    lower, higher = bool(counted & LOWER), bool(counted & HIGHER) or by_second
    if lower == higher or (higher and counted & LOST):
        return None
    return "higher" if higher else "lower"
