"""Reconstruct an interrupted round from the journal: which slots are done, which to retry."""

from __future__ import annotations

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.task import Task

RETRIES = ("repair", "split")
"""Decisions that start another attempt of the same slot."""
UNDECIDED = ("captured", "verified")
"""States of a candidate that has no decision yet."""
OUTAGE = "outage"
"""The last stage of a slot whose model's provider did not answer, which passes by itself."""
NO_CANDIDATE = ("failed", "no change", OUTAGE)
"""Last stages of a slot whose worker ended without a candidate."""
NOTHING_NEW = (*NO_CANDIDATE, "repeat", "ended", "not begun")
"""Last stages of a slot whose retry brought nothing new, or was not started."""


class RoundProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier engines have done of a round."""

    first_attempt_done: frozenset[str] = frozenset()
    """Slots whose first attempt is done, with any result."""
    undecided: frozenset[str] = frozenset()
    """Slots with a candidate that has no decision yet."""
    retrying: tuple[Candidate, ...] = ()
    """Candidates whose retry had been decided, but was not finished, when the engine ended."""

    @property
    def continuing(self) -> frozenset[str]:
        """Slots that continue with candidates they already have."""
        return self.undecided | {candidate.slot for candidate in self.retrying}


def progress_of(reader: Reader, campaign: str, n: int) -> RoundProgress:
    """Return what earlier engines have done of round `n`.

    Rounds share slot names: another round's candidate that is judged again in this one does not
    count for this round's slot. A patch in the inbox counts as new while its file is there; judging
    it again costs nothing, since its candidate is known.
    """
    captured: dict[str, list[Candidate]] = {}
    for candidate in reader.candidates(campaign):
        if is_work_of(reader, candidate, n):
            captured.setdefault(candidate.slot, []).append(candidate)
    decided = {d.candidate: d.kind for d in reversed(reader.decisions(campaign)) if d.round == n}
    slots = reader.slots(campaign, n)
    return RoundProgress(
        first_attempt_done=frozenset(slot.slot for slot in slots if slot.backend != "inbox" and (
            slot.slot in captured or slot.candidate or slot.stage in NO_CANDIDATE)),
        undecided=frozenset(slot for slot, candidates in captured.items()
                            if any(candidate.state in UNDECIDED for candidate in candidates)),
        retrying=tuple(captured[slot.slot][-1] for slot in slots if slot.slot in captured
                       and decided.get(captured[slot.slot][-1].id) in RETRIES
                       and slot.stage not in NOTHING_NEW))


def is_work_of(reader: Reader, candidate: Candidate, n: int) -> bool:
    """Return whether a candidate is the work of a slot of round `n`, or another form of it."""
    origin = _origin(reader, candidate)
    return candidate.round == origin.round == n and \
        reader.task(origin.campaign, origin.id) is not None


def _origin(reader: Reader, candidate: Candidate) -> Candidate:
    """Return the captured candidate that this one is a form of, or the candidate itself."""
    return reader.forms(recorded(reader, candidate))[-1]


def task_of(reader: Reader, candidate: Candidate) -> Task | None:
    """Return the task of the worker that made a candidate, or made the one it is a form of."""
    return reader.task(candidate.campaign, _origin(reader, candidate).id)


def retries(reader: Reader, candidate: Candidate) -> int:
    """Return how many retries of a candidate were started."""
    return sum(decision.candidate == candidate.id and decision.kind in RETRIES
               for decision in reader.decisions(candidate.campaign))


def recorded(reader: Reader, candidate: Candidate) -> Candidate:
    """Return the candidate's row in the journal, with the fields that only the journal has."""
    return reader.candidate(candidate.id, candidate.campaign)


def notes(reader: Reader, candidate: Candidate) -> str:
    """Return why the candidate's worker was stopped early, and which files were left out."""
    row = recorded(reader, candidate)
    return "; ".join(filter(None, (row.cut, row.left_out and f"left out {row.left_out}")))
