"""What was right on this best and divided the config classes, for those who may split the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from engine.history.history import CampaignHistory
from engine.judge import judge
from harness.formats.text import plain
from harness.verdict import ClassOutcome, Verdict

MOST = 3
"""Divided candidates in a brief, those of the last rounds."""
HEAD = """## What needs a split

These changes were right, and divided the config classes. Such a change is kept where the kernel as
it is stays the default, and the changed one, under a name of its own, is taken for the classes that
gain, by a dispatch on the real columns that tell them apart:
"""


class DivergentCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One such change; classes have what they became faster or slower by."""

    round: int
    hypothesis: str
    faster: tuple[str, ...]
    slower: tuple[str, ...]


def of(past: CampaignHistory) -> tuple[DivergentCandidate, ...]:
    """Return what needs a split on the best as it is, the newest first."""
    found: dict[str, DivergentCandidate] = {}
    for told in reversed(past.decisions):
        candidate, row = past.candidates.get(told.candidate), past.verdicts.get(told.verdict or 0)
        if candidate is None or row is None or candidate.base_commit != past.best \
                or told.actor != "engine" or told.kind in ("ask", "keep") or candidate.id in found \
                or len(found) == MOST:
            continue
        if judge.needs_split(verdict := row.decode()):
            found[candidate.id] = DivergentCandidate(
                round=told.round, hypothesis=candidate.hypothesis,
                faster=_classes(verdict, "faster"), slower=_classes(verdict, "slower"))
    return tuple(found.values())


def brief(found: Sequence[DivergentCandidate]) -> str:
    """Return what an agent is told of them, as Markdown; "" if there is nothing."""
    return "\n".join([HEAD, *(f"- {_line(one)}" for one in found), ""]) if found else ""


def _line(one: DivergentCandidate) -> str:
    text = f"round {one.round}: {plain(one.hypothesis, 300)}: faster in " \
           f"{', '.join(one.faster)}; slower in {', '.join(one.slower)}"
    return " ".join(plain(text, 800).split())


def _classes(verdict: Verdict, outcome: ClassOutcome) -> tuple[str, ...]:
    return tuple(f"{row.config_class} ({math.expm1(row.log_ratio or 0.0):+.1%})"
                 for row in verdict.rows if row.outcome == outcome)
