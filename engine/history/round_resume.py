"""Where a round that was cut short is, by its journal: which slots are through, which are to try a
second time.
"""

from __future__ import annotations

import json

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.task import Task

CAPTURED = "candidate.captured"
SECOND = ("repair", "split")
"""Decisions that give a slot its work back."""
UNDECIDED = ("captured", "verified")
WITHOUT = ("failed", "no change")
"""Last stages of a slot whose worker has ended and brought nothing."""
VOID = (*WITHOUT, "repeat", "ended", "not begun")
"""Last stages of a slot whose second try brought nothing new, or was not to be."""
PIECE = 500
"""Characters of a task in one text of an event, which holds no long ones."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate's capture says it came of."""

    round: int
    task: tuple[str, ...] = ()
    of: str = ""
    """The candidate that it is another form of: on another base, or formatted."""
    left_out: str = ""
    """What of the worker's change is not in the patch, and why."""
    cut: str = ""
    """Why its worker was not done."""


class RoundProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier engines have done of a round."""

    through: frozenset[str] = frozenset()
    """Slots whose first work is done, whatever became of it."""
    undecided: frozenset[str] = frozenset()
    """Slots of which a candidate is not decided on."""
    again: tuple[Candidate, ...] = ()
    """What was to be tried a second time when the engine ended."""

    @property
    def held(self) -> frozenset[str]:
        """Slots that go on with what they have."""
        return self.undecided | {candidate.slot for candidate in self.again}


def progress_of(reader: Reader, campaign: str, n: int) -> RoundProgress:
    """Return what has been done of round `n`.

    Names of slots are those of other rounds too: what has come of another round's work, and was
    tried again in this one, says nothing of its slots. A patch that was handed in is taken for new
    as long as its file lies there: it costs nothing to see that it is not.
    """
    brought: dict[str, list[Candidate]] = {}
    for candidate in reader.candidates(campaign):
        if is_work_of(reader, candidate, n):
            brought.setdefault(candidate.slot, []).append(candidate)
    decided = {d.candidate: d.kind for d in reversed(reader.decisions(campaign)) if d.round == n}
    slots = reader.slots(campaign, n)
    return RoundProgress(
        through=frozenset(slot.slot for slot in slots if slot.backend != "inbox" and (
            slot.slot in brought or slot.candidate or slot.stage in WITHOUT)),
        undecided=frozenset(slot for slot, found in brought.items()
                            if any(one.state in UNDECIDED for one in found)),
        again=tuple(brought[slot.slot][-1] for slot in slots if slot.slot in brought
                    and decided.get(brought[slot.slot][-1].id) in SECOND
                    and slot.stage not in VOID))


def told(task: Task) -> list[str]:
    """Return a task as an event holds it."""
    text = json.dumps(msgspec.to_builtins(task))
    return [text[at:at + PIECE] for at in range(0, len(text), PIECE)]


def task_of(reader: Reader, campaign: str, candidate: str) -> Task | None:
    """Return the task that a candidate came of, None where no worker made it."""
    found = _origin(reader, campaign, candidate)
    text = "".join(found.task) if found is not None else ""
    return msgspec.convert(json.loads(text), Task) if text else None


def is_work_of(reader: Reader, candidate: Candidate, n: int) -> bool:
    """Tell whether a candidate is what a slot of round `n` brought, or another form of that."""
    if candidate.round != n:
        return False
    found = _origin(reader, candidate.campaign, candidate.id)
    while found is not None and found.of:
        found = _origin(reader, candidate.campaign, found.of)
    return found is not None and found.round == n and bool(found.task)


def tries(reader: Reader, candidate: Candidate) -> int:
    """Return how many second tries of a candidate were begun."""
    return sum(told.candidate == candidate.id and told.kind in SECOND
               for told in reader.decisions(candidate.campaign))


def other_form(reader: Reader, candidate: Candidate) -> str:
    """Return the id of the candidate that this one is another form of, "" if of none."""
    found = _origin(reader, candidate.campaign, candidate.id)
    return "" if found is None else found.of


def left_out(reader: Reader, campaign: str, candidate: str) -> str:
    """Return what of a worker's change is not in its candidate, and why."""
    found = _origin(reader, campaign, candidate)
    return "" if found is None else found.left_out


def notes(reader: Reader, campaign: str, candidate: str) -> str:
    """Return what is to be said of a candidate beside what becomes of it: why its worker was not
    done, and what of the change is not in it.
    """
    found = _origin(reader, campaign, candidate)
    told = [] if found is None else [
        found.cut, f"left out {found.left_out}" if found.left_out else ""]
    return "; ".join(filter(None, told))


def scopes(reader: Reader, campaign: str) -> dict[str, str]:
    """Return which config classes a campaign's candidates are about, as their tasks say it; those
    of an older kopt do not.
    """
    found: dict[str, str] = {}
    for event in reader.events_of(campaign, CAPTURED):
        origin = msgspec.json.decode(event.payload, type=Origin)
        task = json.loads("".join(origin.task) or "{}")
        if scope := task.get("scope") or found.get(origin.of):
            found[event.ref] = scope
    return found


def _origin(reader: Reader, campaign: str, candidate: str) -> Origin | None:
    found = reader.event_of(campaign, CAPTURED, candidate)
    return None if found is None else msgspec.json.decode(found.payload, type=Origin)
