"""The limits of a campaign that a person may change after its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from engine.manifest import goal
from engine.manifest.schema import Manifest
from harness.errors import InputError
from harness.formats.text import suggest

LIMITS = ("max_iterations", "performance_target", "budget.wall_s", "budget.trials", "budget.cost",
          "budget.cost_usd", "budget.disk_gb", "stop.consecutive_regressions",
          "stop.efficiency_pct", "stop.no_gain_rounds", "pool.worker_timeout_s", "pool.outage_s",
          "pool.agent.step_limit", "pool.agent.cost_limit_usd", "pool.agent.timeout_s")
"""`budget.pairs` is not among them: all verdicts of a campaign are measured alike."""


def with_limits(manifest: Manifest, limits: Mapping[str, str]) -> Manifest:
    """Return the manifest with other limits: `limits` maps names, see `full_name`, to new values.

    The value "none" removes a limit. Raises InputError for an unknown name, an impossible value, or
    one without effect.
    """
    value: dict[str, Any] = msgspec.to_builtins(manifest)
    for limit, text in limits.items():
        *parts, key = full_name(limit).split(".")
        place = value
        for part in parts:
            place = place[part]
            if place is None:
                raise InputError(f"{limit}: the campaign has no {part}")
        place[key] = None if text.lower() in ("none", "null") else text
        try:
            manifest = msgspec.convert(value, Manifest, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"{limit}: {text!r} is not a possible limit",
                             fix=_expected(str(error))) from None
    target = manifest.performance_target
    if target is not None and goal.parse_goal(target) is None \
            and any(full_name(name) == "performance_target" for name in limits):
        raise InputError(f"performance_target: {target!r} states no number",
                         fix="such as 2x, 60% of roofline, or 12 us")
    agent, worker_s = manifest.pool.agent, manifest.pool.worker_timeout_s
    if agent is not None and agent.timeout_s > worker_s and \
            any(full_name(name) == "pool.agent.timeout_s" for name in limits):
        raise InputError(f"agent.timeout_s is longer than worker_timeout_s, {worker_s:g} s",
                         fix=f"set worker_timeout_s={agent.timeout_s:g} as well")
    return manifest


def full_name(name: str) -> str:
    """Return the full name of a limit, such as `pool.agent.timeout_s` for `agent.timeout_s`.

    Raises InputError if there is no such limit.
    """
    matching = [known for known in LIMITS if f".{known}".endswith(f".{name}")]
    if not matching:
        raise InputError(f"{name} is not a limit that can be changed",
                         fix=suggest(name, LIMITS) or f"known: {', '.join(LIMITS)}")
    return matching[0]


def _expected(message: str) -> str:
    """Return what msgspec expected, in words."""
    kind, _, bound = message.removeprefix("Expected ").partition(" - at ")[0].partition(",")[0] \
        .removeprefix("`").partition("`")
    for name, expected in (("int", "a whole number"), ("float", "a number"),
                           (" | null", " or none")):
        kind = kind.replace(name, expected)
    return f"expected {kind}{bound}"


def changes(before: Manifest, after: Manifest) -> str:
    """Return what differs between two manifests, as `max_iterations none → 8`."""
    return ", ".join(f"{name} {_shown(before, name)} → {_shown(after, name)}" for name in LIMITS
                     if _shown(before, name) != _shown(after, name))


def _shown(manifest: Manifest, name: str) -> str:
    value: Any = manifest
    for part in name.split("."):
        value = getattr(value, part, None)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
