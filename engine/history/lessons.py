"""What of a campaign is worth knowing in the next one on the same hardware, op and backend.

A lesson is a gain that was kept, or a class of rejects that came again and again. It follows from
the journal alone, so that it is the same whoever works it out, and when.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

import msgspec

from engine.history import change_summary
from engine.history.history import CampaignHistory
from engine.journal.records import Candidate, DecisionRow
from engine.judge.judge import describe_rows, describe_speedup
from engine.markdown import level
from harness.formats.text import plain
from harness.verdict import Transfer, Verdict

REPEATS = 3
"""So many rejects of one class, and it is a lesson."""
LONGEST = 300
"""Characters of a lesson that is told."""
_FAULTS = ("could not be judged", "could not be kept")
"""Rejects that say something of this machine or moment, nothing of the kernel."""
_ID = re.compile(r"^b\d+\.\d+\s+")
"""What a bottleneck is called in its own campaign, and nowhere else."""


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """One lesson; `key` is the same for what is the same lesson, in whichever campaign."""

    key: str
    round: int
    at: float
    text: str


def of(past: CampaignHistory, *, accepted: bool = False) -> tuple[Lesson, ...]:
    """Return a campaign's lessons, oldest first; with `accepted` none of a gain whose final
    acceptance is still to come.
    """
    gains = _gains(past, [keep for keep in past.standing if not past.fails(keep.commit)
                          and (past.accepted(keep.commit) or not accepted)])
    found = sorted([*gains, *_rejects(past)], key=lambda lesson: lesson.at)
    return tuple({lesson.key: lesson for lesson in reversed(found)}.values())[::-1]


def category(reason: str) -> str:
    """Return what a reject's reason has in common with others of its class."""
    head = re.split(r"[:;(]", plain(reason, LONGEST))[0]
    return re.sub(r"[0-9][0-9.]*", "#", " ".join(head.lower().split()))


def _gains(past: CampaignHistory, keeps: Iterable[DecisionRow]) -> Iterator[Lesson]:
    for keep in keeps:
        candidate = past.candidates.get(keep.candidate)
        row = past.verdicts.get(keep.verdict or 0)
        if candidate is None or row is None or not candidate.hypothesis:
            continue
        verdict = row.decode()
        if not _transfers(verdict.transfer):
            continue
        against = _ID.sub("", candidate.bottleneck)
        aimed = f", against {against}" if against else ""
        bound = "; a cache of weights, so its gain is bounded" \
            if verdict.transfer and verdict.transfer.bucket == "W1" else ""
        classes = f"; {describe_rows(verdict.rows)}" if verdict.rows else ""
        lines = change_summary.quoted(past.folder, candidate) or change_summary.knobs(
            past.folder, candidate
        )
        what = f"{lines} ({candidate.hypothesis})" if lines else candidate.hypothesis
        yield _lesson(keep, f"kept {_words(lines or candidate.hypothesis)}", (
            f"helped: {what}{aimed}: {describe_speedup(verdict)}{_level(verdict)}{classes}{bound}"))


def _level(verdict: Verdict) -> str:
    return level(verdict.alpha) if verdict.speedup_low is not None else ""


def _transfers(found: Transfer | None) -> bool:
    """Whether a gain may be recommended: not what a benchmark alone gives, or even groups alone."""
    return found is None or (found.decision != "REJECT-as-overfit" and not found.skew)


def _rejects(past: CampaignHistory) -> Iterator[Lesson]:
    """Yield a lesson at the reject that makes its class one."""
    classes: dict[str, dict[str, Candidate]] = {}
    for told in past.decisions:
        candidate = past.candidates.get(told.candidate)
        if told.kind != "reject" or told.actor != "engine" or candidate is None:
            continue
        named = category(told.reason)
        seen = classes.setdefault(named, {})
        if candidate.id in seen or named.startswith(_FAULTS):
            continue
        seen[candidate.id] = candidate
        if len(seen) == REPEATS:
            yield _lesson(told, f"reject {named}", (
                f"rejected {REPEATS} times: {told.reason} (the last: {candidate.hypothesis})"))


def _lesson(told: DecisionRow, identity: str, text: str) -> Lesson:
    return Lesson(key=hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:12],
                  round=told.round, at=told.at, text=" ".join(plain(text, LONGEST).split()))


def _words(text: str) -> str:
    return " ".join(plain(text).lower().split())
