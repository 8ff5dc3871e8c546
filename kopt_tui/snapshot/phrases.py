"""How kopt says things in a line: signs with words, speedups with intervals, times, events.

Everything that came from a worker passes through `clean` before it reaches a screen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

import msgspec

from engine.journal.records import Event
from harness.formats.text import plain
from kopt_tui.snapshot.snapshot import Speedup

SIGNS: Mapping[str, tuple[str, str]] = {
    "keep": ("✓", "good"), "kept": ("✓", "good"), "finished": ("✓", "good"),
    "faster": ("✓", "good"), "baseline": ("·", "dim"), "headline": ("»", "info"),
    "e2e": ("»", "info"), "e2e.not_run": ("!", "warn"),
    "tie": ("=", "plain"),
    "regression": ("▼", "warn"), "slower": ("▼", "warn"), "reject": ("✗", "bad"),
    "invalid": ("✗", "bad"), "incorrect": ("✗", "bad"), "broken": ("✗", "bad"),
    "failed": ("✗", "bad"), "lost": ("✗", "bad"), "repair": ("↻", "info"),
    "split": ("÷", "info"), "ask": ("?", "accent"), "waiting": ("?", "accent"),
    "runner-up": ("+", "info"), "measured": ("·", "plain"), "verified": ("·", "plain"),
    "running": ("►", "good"), "paused": ("‖", "warn"), "stopped": ("■", "plain"),
    "new": ("·", "dim"), "flag": ("!", "warn"), "note": ("·", "dim"), "warning": ("!", "warn"),
}
"""The sign and the tone of each word; a tone never stands alone."""

UNMEASURED = "kept, not measured"
"""The best against the baseline, between a keep and its verdict, or where there was none."""
BARS = "▁▂▃▄▅▆▇█"
CLIP = 2000
RATIO = re.compile(r"^\d[\d.]*x \[[^]]*\];? *")


def clean(text: str, limit: int = CLIP) -> str:
    """Return one line of plain text, without control characters, clipped to `limit` characters."""
    return plain(text[: limit * 2]).replace("\n", " ").replace("\t", " ")[:limit]


def sign(word: str) -> str:
    """Return the sign of a word."""
    return SIGNS.get(word, ("·", "plain"))[0]


def tone(word: str) -> str:
    """Return the tone in which a word is said."""
    return SIGNS.get(word, ("·", "plain"))[1]


def signed(word: str) -> str:
    """Return a word after its sign, such as "✓ keep"."""
    return f"{sign(word)} {word}"


def ratio(value: float) -> str:
    """Return a speedup such as "1.52x"."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}x"


def speedup(value: Speedup | None, *, interval: bool = True) -> str:
    """Return a speedup and its interval such as "1.52x [1.49, 1.55]", empty without one."""
    if value is None:
        return ""
    if not interval or value.low is None or value.high is None:
        return ratio(value.value)
    return f"{ratio(value.value)} [{ratio(value.low)[:-1]}, {ratio(value.high)[:-1]}]"


def micros(value: float | None) -> str:
    """Return a latency given in microseconds with a unit that keeps three digits."""
    if value is None:
        return ""
    for unit in ("us", "ms"):
        if value < 1000:
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
        value /= 1000
    return f"{value:.2f} s"


def clock(at: float) -> str:
    """Return the local time of day such as "14:02:11"."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def moment(at: float, now: float) -> str:
    """Return "14:02" for a time of today and "Nov 20" for an older one; it never ages by itself."""
    then, today = time.localtime(at), time.localtime(now)
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if same_day else "%b %d", then)


def stamp(at: float) -> str:
    """Return date and time such as "2026-11-20 14:02:11"."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def span(seconds: float) -> str:
    """Return a duration such as "3 min" or "2 h 05 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def spark(values: Sequence[float], width: int) -> str:
    """Return values as a row of bars; it says nothing that the numbers beside it do not say."""
    shown = values[-width:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    reach = (high - low) or 1.0
    return "".join(BARS[round((value - low) / reach * (len(BARS) - 1))] for value in shown)


def bar(part: float | None, width: int) -> str:
    """Return a progress bar of `width` cells, blank where progress is unknown."""
    if part is None:
        return " " * width
    full = round(max(0.0, min(1.0, part)) * width)
    return "━" * full + "╌" * (width - full)


def short(name: str, length: int = 8) -> str:
    """Return the first characters of a hash."""
    return clean(name, 64)[:length]


def unprefixed(reason: str) -> str:
    """Return a reason without the speedup that it begins with, which stands beside it."""
    return RATIO.sub("", reason)


def rounds(done: int, most: int | None) -> str:
    """Return "3/12", or "3" without an end."""
    return f"{done}/{most}" if most else str(done)


def event(record: Event) -> str:
    """Return an event as one line of plain text."""
    told = facts(record)
    if record.kind == "verdict":
        return clean(f"verdict  {short(record.ref)}  {_said(told, 'slot')}  {_judged(told)}", 400)
    if record.kind == "decision":
        kind, reason = _said(told, "kind"), _said(told, "reason")
        return clean(f"decision  {short(record.ref)}  {_said(told, 'slot')}  {signed(kind)}"
                     f"{': ' if reason else ''}{reason}", 400)
    if record.kind == "trials":
        return clean(f"trials  {record.ref}  {told.get('count', 0)} screened", 400)
    if record.kind == "rollback":
        return clean(f"rolled back  {_said(told, 'reason')}; {_said(told, 'told')}", 400)
    if record.kind == "bottlenecks":
        return clean(f"bottlenecks  {_limiters(told)}", 400)
    parts = [record.kind.replace(".", " ")]
    if record.ref and record.ref != record.campaign:
        parts.append(short(record.ref, 12))
    parts += [said for key, value in told.items() if (said := _fact(key, value, record.ref))]
    return clean("  ".join(parts), 400)


def facts(record: Event) -> Mapping[str, object]:
    """Return an event's payload; an unreadable one is empty."""
    try:
        payload = msgspec.json.decode(record.payload or b"{}")
    except msgspec.DecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _said(facts: Mapping[str, object], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _judged(facts: Mapping[str, object]) -> str:
    """Return what a verdict's event says was found."""
    if not facts.get("valid"):
        return f"✗ invalid: {_said(facts, 'reason')}"
    if not facts.get("correct"):
        return "✗ incorrect"
    numbers = [facts.get(name) for name in ("speedup", "low", "high")]
    value, low, high = (float(n) if isinstance(n, int | float) else None for n in numbers)
    return speedup(Speedup(value, low, high)) if value is not None else "correct, not timed"


def _limiters(told: Mapping[str, object]) -> str:
    """Return what limits the incumbent, each limiter once."""
    top = told.get("top")
    found = [one.get("limiter") for one in top if isinstance(one, dict)] \
        if isinstance(top, list) else []
    return ", ".join(dict.fromkeys(one for one in found if isinstance(one, str))) or "none found"


def _fact(key: str, value: object, ref: str) -> str:
    """Return one fact of an event's payload: texts alone, numbers with their name."""
    if value is None or value == "" or str(value) == ref or key in ("low", "high", "tree", "task"):
        return ""
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if key in ("speedup", "best_speedup") and isinstance(value, int | float):
        return ratio(float(value))
    if isinstance(value, float):
        return f"{key} {value:.4g}"
    if isinstance(value, str):
        return short(value) if key in ("commit", "candidate") else clean(value, 300)
    return f"{key} {clean(str(value), 80)}"

