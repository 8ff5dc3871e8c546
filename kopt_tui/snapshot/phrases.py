"""How kopt says things in one line: words with signs, speedups, times, events.

Every text that came from a worker passes through `clean` before it reaches a terminal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from harness.formats import quantities
from harness.formats.text import plain

if TYPE_CHECKING:  # for start-up time, see `snapshot`
    from engine.journal.records import Campaign, Event, Slot
    from engine.task import AgentProgress

ENDED = ("waiting", "finished", "stopped", "failed")
"""States of a campaign that no engine continues by itself."""
ENGINE_GONE = "its engine is gone; kopt resume continues the campaign"

SIGNS: Mapping[str, tuple[str, str]] = {
    "keep": ("✓", "good"), "kept": ("✓", "good"), "finished": ("✓", "good"),
    "faster": ("✓", "good"), "baseline": ("·", "dim"), "not judged here": ("·", "warn"),
    "headline": ("»", "info"), "e2e": ("»", "info"), "e2e.not_run": ("!", "warn"),
    "tie": ("=", "plain"), "uncertain": ("~", "plain"),
    "regression": ("▼", "warn"), "slower": ("▼", "warn"), "reject": ("✗", "bad"),
    "invalid": ("✗", "bad"), "incorrect": ("✗", "bad"), "broken": ("✗", "bad"),
    "failed": ("✗", "bad"), "lost": ("✗", "bad"), "not kept": ("✗", "bad"),
    "repair": ("↻", "info"),
    "split": ("÷", "info"), "ask": ("?", "accent"), "waiting": ("?", "accent"),
    "provisional": ("?", "info"),
    "runner-up": ("+", "info"), "measured": ("·", "plain"), "verified": ("·", "plain"),
    "running": ("►", "good"), "judging": ("►", "good"), "paused": ("‖", "warn"),
    "stopped": ("■", "plain"), "new": ("·", "dim"), "flag": ("!", "warn"), "note": ("·", "dim"),
    "warning": ("!", "warn"),
}
"""Sign and tone of each word; neither a sign nor a tone appears without its word."""

ITSELF = "the unchanged code against itself"
"""What the baseline's verdict compares."""
UNMEASURED = "kept, not measured"
"""Shown for the best between a keep and its verdict against the baseline."""
BARS = "▁▂▃▄▅▆▇█"
CLIP = 2000
MODEL_STAGES = ("starting", "asking", "running", "waiting")
"""Stages of a slot while its model is at work."""
HIDDEN = "low", "high", "tree", "task", "utc_offset_s"
"""Fields of events that a line of text leaves out."""
HASH = re.compile("[0-9a-f]{40}")
RATIO = re.compile(r"^(\d[\d.]*x|uncertain)( \[[^]]*\])?(;? +|$)")


def clean(text: str, limit: int = CLIP) -> str:
    """Return one line of plain text, without control characters, clipped to `limit` characters."""
    return plain(text[: limit * 2]).replace("\n", " ").replace("\t", " ")[:limit]


def sign(word: str) -> str:
    return SIGNS.get(word, ("·", "plain"))[0]


def tone(word: str) -> str:
    return SIGNS.get(word, ("·", "plain"))[1]


def signed(word: str) -> str:
    """Return a word after its sign: `✓ keep`."""
    return f"{sign(word)} {word}"


def ruled(kind: str, reason: str) -> tuple[str, str]:
    """Return a decision after its sign, and its tone: `▼ regression`, `~ regression`.

    A regression has the sign of an uncertain speedup if only a class is surely slower.
    """
    is_open = kind == "regression" and "uncertain" in reason.partition(";")[0]
    word = "uncertain" if is_open else kind
    return f"{sign(word)} {kind}", tone(word)


def headline(campaign: Campaign) -> str:
    """Return the best's speedup over the baseline: `1.52x [1.49, 1.55]`, "" if not measured."""
    return quantities.speedup(campaign.speedup, campaign.speedup_low, campaign.speedup_high)


def best(campaign: Campaign) -> str:
    """Return the best's speedup, why there is none after a keep, "" before the first keep."""
    nothing_kept = campaign.best_commit == campaign.base_commit
    return headline(campaign) or ("" if nothing_kept else UNMEASURED)


def state(campaign: Campaign, *, live: bool) -> str:
    """Return a campaign's state in a word: "lost" for a running one whose engine is gone, "judging"
    for one that has ended and whose host is at work on a submission or a decision.
    """
    if campaign.state == "running" and not live:
        return "lost"
    return "judging" if live and campaign.phase and campaign.state in ENDED else campaign.state


def phase(campaign: Campaign, *, live: bool) -> str:
    """Return what a campaign's engine does or that it is gone, and how the campaign ended."""
    if campaign.state in ("running", "paused") and not live:
        return ENGINE_GONE
    return "; ".join(filter(None, (work(campaign) if live else "", campaign.outcome)))


def work(campaign: Campaign) -> str:
    """Return what the engine or host of a live campaign does."""
    return f"judges what came after its end ({campaign.phase})" \
        if state(campaign, live=True) == "judging" else campaign.phase


def clock(at: float) -> str:
    """Return the local time of day: `14:02:11`; "" for a time that no clock shows."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return ""


def moment(at: float, now: float) -> str:
    """Return `14:02` for a time of today, `Nov 20` for an older one.

    An age such as "3 min ago" would change, and be repainted, without an event.
    """
    then, today = time.localtime(at), time.localtime(now)
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M" if same_day else "%b %d", then)


def age(seconds: float) -> str:
    """Return how long something lasts, in steps so large that a wait costs few repaints.

    `20 s`, `3 min`, `5 h`; "" below ten seconds.
    """
    if seconds < 60:
        return f"{seconds // 10 * 10:.0f} s" if seconds >= 10 else ""
    return f"{seconds // 60:.0f} min" if seconds < 3600 else f"{seconds // 3600:.0f} h"


def stamp(at: float) -> str:
    """Return the local date and time: `2026-11-20 14:02:11`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def spark(values: Sequence[float], width: int) -> str:
    """Return the last values as a row of bars."""
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
    """Return a reason without the speedup that it begins with: another column shows it."""
    return RATIO.sub("", reason)


def measure_again(candidate: str) -> str:
    """Return how a person has a near gain measured again."""
    return f"kopt submit --from {candidate[:12]} measures it again"


def agent(progress: AgentProgress | None) -> str:
    """Return how far a model is: `step 3/60 $0.0123`, or `step 3` without a limit; "" for none."""
    if progress is None:
        return ""
    limit = f"/{progress.step_limit}" if progress.step_limit else ""
    return f"step {progress.step}{limit} {quantities.dollars(progress.cost_usd)}"


def slot(row: Slot, elapsed: str = "") -> str:
    """Return what happens in a slot: how far its model is and its last command, or the detail.

    `elapsed` is for how long the attempt lasts.
    """
    detail = unprefixed(row.detail).removeprefix("waiting ")
    if row.agent is not None and row.stage in ("asking", "running"):
        detail = row.agent.command
    if row.stage not in MODEL_STAGES:
        elapsed = ""
    far = " ".join(filter(None, (agent(row.agent), elapsed)))
    return "  ".join(filter(None, (far, detail)))


def event(record: Event) -> str:
    """Return an event as one line of plain text."""
    payload = facts(record)
    if record.kind == "verdict" and payload.get("purpose") == "baseline" and payload.get("correct"):
        return clean(f"verdict  baseline  {noise(payload.get('low'), payload.get('high'))}  "
                     f"{ITSELF}", 400)
    if record.kind == "verdict":
        return clean(f"verdict  {short(record.ref)}  {_text(payload, 'slot')}  "
                     f"{_outcome(payload)}", 400)
    if record.kind == "decision":
        kind, reason = _text(payload, "kind"), _text(payload, "reason")
        return clean(f"decision  {short(record.ref)}  {_text(payload, 'slot')}  "
                     f"{ruled(kind, reason)[0]}{': ' if reason else ''}{reason}", 400)
    if record.kind == "trials":
        return clean(f"trials  {record.ref}  {payload.get('count', 0)} screened", 400)
    if record.kind == "rollback":
        return clean(f"rolled back  {_text(payload, 'reason')}; {_text(payload, 'told')}", 400)
    if record.kind == "plan":
        told = (_text(payload, key) for key in ("split", "analysis", "model", "routing"))
        return clean(f"plan  round {record.ref}: {'; '.join(filter(None, told))}", 800)
    if record.kind == "patch-review":
        return clean(f"review  {short(record.ref)}  {_text(payload, 'model')}: "
                     f"{_text(payload, 'concerns') or _text(payload, 'note')}", 400)
    if record.kind == "bottlenecks":
        return clean(f"bottlenecks  {_limiters(payload)}", 400)
    parts = [record.kind.replace(".", " ")]
    if record.ref and record.ref != record.campaign:
        parts.append(short(record.ref, 12))
    parts += filter(None, (_fact(key, value, record.ref) for key, value in payload.items()))
    return clean("  ".join(parts), 400)


def noise(low: object, high: object) -> str:
    """Return the interval of the baseline against itself: `noise [0.96, 1.05]`, "" if not timed."""
    known = isinstance(low, int | float) and isinstance(high, int | float)
    return f"noise [{low:.2f}, {high:.2f}]" if known else ""


def facts(record: Event) -> Mapping[str, object]:
    """Return an event's payload, empty if it cannot be read."""
    try:
        payload = msgspec.json.decode(record.payload or b"{}")
    except msgspec.DecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _text(payload: Mapping[str, object], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""


def _outcome(payload: Mapping[str, object]) -> str:
    """Return the outcome that a verdict's event records."""
    if not payload.get("valid"):
        return f"✗ invalid: {_text(payload, 'reason')}"
    if not payload.get("correct"):
        return "✗ incorrect"
    numbers = [payload.get(name) for name in ("speedup", "low", "high")]
    value, low, high = (float(n) if isinstance(n, int | float) else None for n in numbers)
    return quantities.speedup(value, low, high) or "correct, not timed"


def _limiters(payload: Mapping[str, object]) -> str:
    """Return what limits the incumbent, each limiter once."""
    top = payload.get("top")
    limiters = [bottleneck.get("limiter") for bottleneck in top if isinstance(bottleneck, dict)] \
        if isinstance(top, list) else []
    names = dict.fromkeys(name for name in limiters if isinstance(name, str))
    return ", ".join(names) or "none found"


def _fact(key: str, value: object, ref: str) -> str:
    """Return one field of an event's payload: texts alone, a number with its name."""
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if value in (None, "", 0, [], {}) or str(value) == ref or key in HIDDEN:
        return ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return clean("; ".join(value), 300)
    if key in ("speedup", "best_speedup") and isinstance(value, int | float):
        return quantities.ratio(float(value))
    if isinstance(value, float):
        return f"{key} {value:.4g}"
    if isinstance(value, str):
        return short(value) if key == "candidate" or HASH.fullmatch(value) else clean(value, 300)
    return f"{key} {clean(str(value), 80)}"
