"""Describe an event in one line of text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from harness.formats import quantities
from harness.verdict import BLIND_CHECK
from kopt_tui.snapshot.phrases import ITSELF, clean, noise, quoted, ruled, short

if TYPE_CHECKING:  # for start-up time, see `snapshot`
    from engine.journal.records import Event

HIDDEN = "low", "high", "tree", "task", "utc_offset_s", "at", "nothing_left_on"
"""Fields of events that a line of text leaves out."""
HASH = re.compile("[0-9a-f]{40}")


def event(record: Event) -> str:
    """Return an event as one line of plain text."""
    payload = facts(record)
    if record.kind == "verdict" and payload.get("purpose") == "baseline" and payload.get("correct"):
        return clean(f"verdict  baseline  {noise(payload.get('low'), payload.get('high'))}  "
                     f"{ITSELF}", 400)
    if record.kind == "verdict" and payload.get("purpose") == "canary" and not (
            payload.get("valid") and payload.get("correct")):
        return clean(f"verdict  canary  {_canary(record.ref, payload)}", 400)
    if record.kind == "verdict":
        words = short(record.ref), _text(payload, "slot"), _outcome(payload)
        return clean(f"verdict  {'  '.join(filter(None, words))}", 400)
    if record.kind == "baseline":
        return clean(f"baseline  {short(record.ref)}  {_baseline_text(payload)}", 400)
    if record.kind == "decision":
        kind, reason = _text(payload, "kind"), _text(payload, "reason")
        return clean(f"decision  {short(record.ref)}  {_text(payload, 'slot')}  "
                     f"{ruled(kind, reason)[0]}{': ' if reason else ''}{reason}", 400)
    if record.kind == "artifacts":
        return clean(f"artifacts  {_text(payload, 'path')}", 400)
    if record.kind == "candidate.state":  # its decision or verdict says why
        facts_shown = (short(record.ref), _text(payload, "slot"), _text(payload, "state"),
                       short(_text(payload, "commit")))
        return clean(f"candidate state  {'  '.join(filter(None, facts_shown))}", 400)
    if record.kind == "trials":
        return clean(f"trials  {record.ref}  {payload.get('count', 0)} screened", 400)
    if record.kind == "rollback":
        return clean(f"rolled back  {_text(payload, 'reason')}; {_text(payload, 'told')}", 400)
    if record.kind == "plan":
        texts = (_text(payload, key) for key in ("split", "idle", "analysis", "model", "routing"))
        return clean(f"plan  round {record.ref}: {'; '.join(filter(None, texts))}", 800)
    if record.kind == "patch-review":
        return clean(f"review  {short(record.ref)}  {_text(payload, 'model')}: "
                     f"{_text(payload, 'concerns') or _text(payload, 'note')}", 400)
    if record.kind == "bottlenecks":
        return clean(f"bottlenecks  {_limiters(payload)}", 400)
    parts = [record.kind.replace(".", " ")]
    if record.ref and record.ref != record.campaign:
        parts.append(short(record.ref, 12))
    if _text(payload, "summary").startswith(f"{_text(payload, 'outcome')}: "):
        payload = {key: value for key, value in payload.items() if key != "outcome"}
    parts += filter(None, (_field_text(key, value, record.ref) for key, value in payload.items()))
    return clean("  ".join(parts), 400)


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


def _canary(name: str, payload: Mapping[str, object]) -> str:
    """Return what a canary showed; only a warning says more of a check that passed."""
    if name == "emptied":
        reason = _text(payload, "reason")
        return f"✗ {reason}" if reason == BLIND_CHECK else \
            f"the copy that computes nothing was found wrong, as it must: {reason}"
    return f"the broken copy failed, as it must: {_outcome(payload).removeprefix('✗ ')}"


def _baseline_text(payload: Mapping[str, object]) -> str:
    """Return the baseline's latency, and the smallest gain that noise does not hide."""
    latency, least = (payload.get(name) for name in ("latency_us", "noise"))
    return "; ".join(filter(None, (
        quantities.latency(latency, _text(payload, "per"))
        if isinstance(latency, int | float) else "",
        f"a gain of less than {quantities.percent(least, 1)} is hard to tell from noise"
        if isinstance(least, int | float) else "")))


def _limiters(payload: Mapping[str, object]) -> str:
    """Return what limits the incumbent, each limiter once."""
    top = payload.get("top")
    limiters = [bottleneck.get("limiter") for bottleneck in top if isinstance(bottleneck, dict)] \
        if isinstance(top, list) else []
    names = dict.fromkeys(name for name in limiters if isinstance(name, str))
    return ", ".join(names) or "none found"


def _field_text(key: str, value: object, ref: str) -> str:
    """Return a field of an event's payload in words: a number after its name, a text alone."""
    if key in HIDDEN or value in (None, "", [], {}) or str(value) == ref:
        return ""
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if value == 0:
        return ""
    if isinstance(value, dict):
        fields = ", ".join(
            f"{name} {each}" if isinstance(each, str) else _field_text(str(name), each, ref)
            for name, each in value.items() if each)
        return f"{key}: {clean(fields, 300)}" if fields else ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return clean("; ".join(value), 300)
    if key in ("speedup", "best_speedup") and isinstance(value, int | float):
        return quantities.ratio(float(value))
    if isinstance(value, float):
        return f"{key} {value:.4g}"
    if key == "hypothesis" and isinstance(value, str):
        return quoted(value, 300)
    if isinstance(value, str):
        return short(value) if key == "candidate" or HASH.fullmatch(value) else clean(value, 300)
    return f"{key} {clean(str(value), 80)}"
