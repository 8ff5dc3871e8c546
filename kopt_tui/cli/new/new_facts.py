"""What `kopt new --json` says of a manifest: the kernel, its classes, knobs and first verdict."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.discovery.watched.first_check import FirstCheck
from harness.search.space.knob_edits import KnobProposal
from harness.search.space.knobs import Knob
from harness.verdict import Value


class TriedKnob(msgspec.Struct, frozen=True, kw_only=True):
    """A knob that kopt declares in a campaign's copy; the kernel stayed correct when it was tried.
    """

    name: str
    choices: tuple[Value, ...]
    origin: str = msgspec.field(name="from")


class DraftedClass(msgspec.Struct, frozen=True, kw_only=True):
    """A config class; those of a benchmark have rows and a share of the score, 0 to 1."""

    name: str
    rows: int | None = None
    share: float | None = None
    core: bool = False


class FirstVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the kernel as it is, by its new task."""

    correct: bool
    not_judged: str
    classes: tuple[str, ...]


class NewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a new manifest is about; fields that its kind of target lacks are empty."""

    op: str = ""
    language: str = ""
    source: str = ""
    knobs: tuple[Knob, ...] = ()
    proposed_knobs: tuple[TriedKnob, ...] = ()
    classes: tuple[DraftedClass, ...] = ()
    why: str = ""
    """How the classes were found."""
    task: str = ""
    files: tuple[str, ...] = ()
    """What was written beside the manifest."""
    inferred: tuple[str, ...] = ()
    reference: str = ""
    calls: int | None = None
    """How often the program called the function with the arguments of the task."""
    first_verdict: FirstVerdict | None = None
    problem: str = ""
    """Why there is no first verdict, or it is not correct."""
    reference_fails: bool = False
    """Whether that is because the reference raised an error or ended."""
    seconds: float | None = None


def tried_knobs(proposals: Sequence[KnobProposal]) -> tuple[TriedKnob, ...]:
    return tuple(TriedKnob(name=each.name, choices=each.choices, origin=each.why)
                 for each in proposals)


def with_check(facts: NewFacts, check: FirstCheck) -> NewFacts:
    """Return the facts with what the first verdict said."""
    verdict = check.verdict
    return msgspec.structs.replace(
        facts, problem=check.problem, reference_fails=check.reference_fails,
        first_verdict=None if verdict is None else FirstVerdict(
            correct=check.correct, not_judged=verdict.not_judged,
            classes=tuple(row.config_class for row in verdict.rows)))
