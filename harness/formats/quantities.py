"""How kopt prints quantities for people: speedups, percentages, latencies, sizes.

Every room formats through this module, so that a number reads the same in the dashboard, on the
command line and in the files. A value that is None gives an empty text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
Effect = Literal["faster", "slower", "tie", "uncertain"]
TIE = math.log(1.02)
"""An interval of ln(before / after) that includes 0 and stays within +-TIE is a tie."""
WIDE, TINY = 4.0, 1e-300
"""WIDE: an uncertain interval whose bounds have a larger ratio is not printed. TINY: smaller
speedups count as this, since 0 has no logarithm."""


def ratio(value: float) -> str:
    """Return a ratio with two decimals, fewer from 10 on: `0.97x`, `1.52x`, `12.0x`, `120x`."""
    return f"{value:.{_decimals(value)}f}x"


def effect(log_ratio: float | None, low: float | None = None,
           high: float | None = None) -> Effect | None:
    """Return the word for a speedup, all three given as ln(before / after); None if not measured.

    An interval that includes no change is a tie if it lies within TIE, else uncertain.
    """
    if log_ratio is None:
        return None
    low, high = (log_ratio if bound is None else bound for bound in (low, high))
    if low > 0 or high < 0:
        return "faster" if low > 0 else "slower"
    return "tie" if max(-low, high) <= TIE else "uncertain"


def is_uncertain(value: float | None, low: float | None, high: float | None) -> bool:
    """Return whether a speedup is measured, but neither a change nor a tie, see `effect`."""
    if value is None or low is None or high is None:
        return False
    return effect(*(math.log(max(bound, TINY)) for bound in (value, low, high))) == "uncertain"


def speedup(value: float | None, low: float | None = None, high: float | None = None,
            alpha: float | None = None) -> str:
    """Return a speedup with its interval if it has one: `1.52x [1.49, 1.55] at alpha 0.05`.

    An uncertain one (see `effect`) is `uncertain [0.95, 1.12]`, without numbers if it is WIDE.
    """
    if value is None:
        return ""
    if low is None or high is None:
        return ratio(value)
    interval = f"[{ratio(low)[:-1]}, {ratio(high)[:-1]}]{alpha_level(alpha)}"
    if not is_uncertain(value, low, high):
        return f"{ratio(value)} {interval}"
    return f"uncertain {interval}" if high <= WIDE * low else "uncertain"


def speedup_of_log(log_ratio: float | None, low: float | None = None,
                   high: float | None = None) -> str:
    """Return a speedup that is given as ln(before / after), with bounds on the same scale."""
    value, low, high = (None if log is None else math.exp(log) for log in (log_ratio, low, high))
    return speedup(value, low, high)


def alpha_level(alpha: float | None) -> str:
    """Return the error rate at which an interval holds: ` at alpha 0.05`."""
    return "" if alpha is None else f" at alpha {alpha:.2g}"


def percent(share: float | None, decimals: int = 0) -> str:
    """Return a share of 1 in percent: `42%`."""
    return "" if share is None else f"{share:.{decimals}%}"


def change(log_ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return ln(before / after) in words: `12.3% faster`, `4.83x slower`, `tie`, `uncertain`."""
    word = effect(log_ratio, low, high)
    if log_ratio is None or word is None or word in ("tie", "uncertain"):
        return word or ""
    share = math.expm1(abs(log_ratio))
    return f"{ratio(1 + share) if share >= 1 else f'{share:.1%}'} {word}"


def gain(log_ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return ln(before / after) as a speedup, and in words below 2x: `1.25x (25.0% faster)`.

    A tie has no words, an uncertain gain no number.
    """
    if log_ratio is None:
        return "not measured"
    words = change(log_ratio, low, high)
    if words == "uncertain":
        return words
    is_clear = words == "tie" or log_ratio >= math.log(2)
    return ratio(math.exp(log_ratio)) + ("" if is_clear else f" ({words})")


def latency(microseconds: float | None, per: str = "") -> str:
    """Return a latency in a unit that fits, decimals as in `ratio`: `91.8 us`, `2.50 s`.

    `per` is the unit of work that the time is for: `153 ms/GB`.
    """
    if microseconds is None:
        return ""
    for unit in ("us", "ms"):
        if microseconds < 1000:
            return f"{microseconds:.{_decimals(microseconds)}f} {unit}{_per(per)}"
        microseconds /= 1000
    return f"{microseconds:.2f} s{_per(per)}"


def latency_us(microseconds: float | None, per: str = "") -> str:
    """Return a latency with three decimals, for columns and diffs: `91.840 us`.

    From 100 ms on, the unit is ms; from 10 s on, s.
    """
    if microseconds is None:
        return ""
    if microseconds < 1e5:
        return f"{microseconds:.3f} us{_per(per)}"
    value = f"{microseconds / 1e3:.3f} ms" if microseconds < 1e7 else f"{microseconds / 1e6:.3f} s"
    return value + _per(per)


def _per(unit: str) -> str:
    return f"/{unit}" if unit else ""


def dollars(cost: float | None) -> str:
    """Return a cost in US dollars: `$0.0123`, `$1.20`; `cost unknown` for None."""
    return "cost unknown" if cost is None else f"${cost:.{4 if 0 < cost < 0.1 else 2}f}"


def countdown(seconds: float) -> str:
    """Return the time left to the second: `9:58 min`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02} min"


def data_size(count: float) -> str:
    """Return a number of bytes: `512 KiB`, `1.5 MiB`, `120 MiB`, `1.5 GiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if count >= unit:
            return f"{count / unit:.{0 if unit == MIB and count >= 10 * MIB else 1}f} {name}"
    return f"{count / KIB:.0f} KiB"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: `1 class`, `2 classes`, `0 rows`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def listed(words: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first words and how many follow: `a, b, c and 4 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{between.join(words[:most])}{more}"


def _decimals(value: float) -> int:
    return 2 if value < 10 else 1 if value < 100 else 0
