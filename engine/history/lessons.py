"""Lessons for later campaigns on the same hardware, op and backend.

A lesson is a kept gain, or a reject whose reason recurred. Lessons are computed from the journal
alone, so that they are always the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

import msgspec

from engine.history import change_summary
from engine.history.history import CampaignHistory
from engine.journal.judged_rows import DecisionRow
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.judge.attribution import Attribution
from engine.judge.judge import describe_rows, describe_speedup
from harness.formats import quantities
from harness.formats.text import one_line, plain
from harness.verdict import Transfer

REPEATS = 3
"""A class of rejects becomes a lesson after this many."""
LONGEST = 1500
"""Most characters of a lesson."""
_ID = re.compile(r"^b\d+\.\d+\s+")
"""The id of a bottleneck, which means nothing outside its campaign."""


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """One lesson; `key` is the same for the same lesson in any campaign."""

    key: str
    round: int
    at: float
    text: str
    decision: int = 0
    """The decision behind it, 0 where it was read from the campaign's recorded tips."""


class LearnedTip(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a `tips.learned` event."""

    round: int
    lesson: str
    at: float = 0.0


def recorded(reader: Reader, campaign: str) -> list[Lesson]:
    """Return the lessons that a campaign has appended to its tips, in their order."""
    return [Lesson(key=event.ref, round=tip.round, at=tip.at or event.at, text=tip.lesson)
            for event in reader.events_of(campaign, "tips.learned")
            for tip in [event.decoded(LearnedTip)]]


def of(past: CampaignHistory, *, accepted: bool = False) -> tuple[Lesson, ...]:
    """Return a campaign's lessons, oldest first.

    With `accepted`, gains that still wait for their final acceptance are left out.
    """
    gains = _gains(past, [keep for keep in past.standing if not past.fails(keep.commit)
                          and (past.accepted(keep.commit) or not accepted)])
    lessons = sorted([*gains, *_rejects(past)], key=lambda lesson: lesson.at)
    return tuple({lesson.key: lesson for lesson in reversed(lessons)}.values())[::-1]


def category(reason: str) -> str:
    """Return the class of a reject: the head of its reason, with `#` for every number."""
    head = re.split(r"[:;(]", plain(reason, LONGEST))[0]
    return re.sub(r"[0-9][0-9.]*", "#", " ".join(head.lower().split()))


def why(past: CampaignHistory, keep: DecisionRow) -> str:
    """Return in words a kept change, where it gained, what it was aimed at, and who kept it."""
    candidate, shown = past.candidates.get(keep.candidate), past.attribution(keep)
    if candidate is None or shown is None:
        return keep.reason
    parts = [change_of(past, candidate, shown)]
    if shown.gained:
        parts.append(f"gained {shown.evidence}")
    if shown.aim:
        parts.append(f"aimed at {shown.aim}")
    if keep.actor != "engine":
        parts.append(f"kept by {keep.actor}")
    return "; ".join(parts)


def change_of(past: CampaignHistory, candidate: Candidate, shown: Attribution) -> str:
    """Return a change in words: its lines or knobs, and its hypothesis.

    The hypothesis is left out if the class that it aimed at did not gain, unless there are no lines
    or knobs to show.
    """
    lines = change_summary.short(past.folder, candidate)
    if not lines:
        return candidate.hypothesis
    return lines if shown.missed else f"{lines} ({candidate.hypothesis})"


def _gains(past: CampaignHistory, keeps: Iterable[DecisionRow]) -> Iterator[Lesson]:
    for keep in keeps:
        candidate = past.candidates.get(keep.candidate)
        verdict = past.verdict_of(keep)
        if candidate is None or verdict is None or not candidate.hypothesis \
                or not _transfers(verdict.transfer):
            continue
        shown = past.attribution(keep)
        assert shown is not None
        bound = "; a cache of weights, so its gain is bounded" \
            if verdict.transfer and verdict.transfer.bucket == "W1" else ""
        level = "" if verdict.speedup_low is None else quantities.alpha_level(verdict.alpha)
        lines = change_summary.quoted(past.folder, candidate) or \
            change_summary.knobs(past.folder, candidate)
        parts = [f"helped: {change_of(past, candidate, shown)}",
                 f"{describe_speedup(verdict)}{level}",
                 f"gained {shown.evidence}" if shown.gained else "",
                 describe_rows([row for row in verdict.rows if row.outcome == "slower"]),
                 f"aimed at {_ID.sub('', shown.aim)}" if shown.aim else ""]
        identity = one_line(lines or candidate.hypothesis).lower()
        yield _lesson(keep, f"kept {identity}", "; ".join(filter(None, parts)) + bound)


def _transfers(transfer: Transfer | None) -> bool:
    """Return whether a gain may be recommended: it is not due to the benchmark or its groups."""
    return transfer is None or (transfer.decision != "REJECT-as-overfit" and not transfer.skew)


def _rejects(past: CampaignHistory) -> Iterator[Lesson]:
    """Yield a lesson at the reject that completes REPEATS of its class."""
    classes: dict[str, dict[str, Candidate]] = {}
    for decision in past.decisions:
        candidate = past.candidates.get(decision.candidate)
        if decision.kind != "reject" or decision.actor != "engine" or decision.is_fault \
                or candidate is None:
            continue
        name = category(decision.reason)
        rejected = classes.setdefault(name, {})
        if candidate.id in rejected:
            continue
        rejected[candidate.id] = candidate
        if len(rejected) == REPEATS:
            yield _lesson(decision, f"reject {name}", (
                f"rejected {REPEATS} times: {decision.reason} (the last: {candidate.hypothesis})"))


def _lesson(decision: DecisionRow, identity: str, text: str) -> Lesson:
    return Lesson(key=hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:12],
                  round=decision.round, at=decision.at, decision=decision.id,
                  text=one_line(text, LONGEST))
