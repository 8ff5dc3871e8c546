"""The interface of a transformation: its name, its aim, and `apply` from source to source."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, TypeVar

import msgspec

from harness.errors import Refused

MOST_PLACES = 6
"""Limit of the places that one transformation changes; later places stay as they are."""
Place = TypeVar("Place")


class DoesNotApply(Refused):
    """A transformation finds nothing to change in a source; the message says why."""


class Replacement(msgspec.Struct, frozen=True, order=True):
    """Text in the place of the characters from `begin` to `end`."""

    begin: int
    end: int
    text: str


class NewKnob(msgspec.Struct, frozen=True, kw_only=True):
    """A knob that a transformation declares, for the search that follows it."""

    name: str
    value: int
    choices: tuple[int, ...]
    note: str

    def declared(self, comment: str, mark: str) -> str:
        """Return its declaration as a comment, with the mark of the program that declared it."""
        choices = ", ".join(map(str, self.choices))
        return f"{comment} kopt: knob {self.name} in [{choices}] {self.note}, {mark}"


class Transformed(msgspec.Struct, frozen=True, kw_only=True):
    """A changed source, what was changed in a few words, and the knobs that are new in it."""

    source: str
    what: str
    knobs: tuple[str, ...] = ()


class Transformation(ABC):
    """A small change of a kernel's source that keeps its meaning, up to rounding."""

    name: ClassVar[str]
    """Unique, and begins with its language: `c-accumulators`; HIP's are those of CUDA."""
    aim: ClassVar[str]
    """What it does, as part of a hypothesis."""

    @abstractmethod
    def apply(self, source: str) -> Transformed:
        """Return the changed source. Raises DoesNotApply, or InputError if it cannot be parsed."""


class EditedSource(ABC):
    """A source, and what a transformation changes in it: edits, new names and new knobs."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.knobs = list[NewKnob]()
        self._edits = list[Replacement]()
        self._new_names = set[str]()

    def free(self, name: str) -> str:
        """Return a new name, which neither the source nor an earlier new name uses."""
        free = free_name(self.source, name, self._new_names)
        self._new_names.add(free)
        return free

    def knob(self, name: str, value: int, choices: tuple[int, ...], note: str) -> NewKnob:
        """Add a knob under a name that is not used yet."""
        knob = NewKnob(name=self.free(name), value=value, choices=choices, note=note)
        self.knobs.append(knob)
        return knob

    def edit(self, *edits: Replacement) -> None:
        self._edits += edits

    def put(self, begin: int, end: int, text: str) -> None:
        self._edits.append(Replacement(begin, end, text))

    def insert(self, at: int, text: str) -> None:
        self.put(at, at, text)

    def transformed(self, what: str, lines: Sequence[int] = ()) -> Transformed:
        """Return the changed source; `what` says what was changed, `lines` are added to it."""
        return Transformed(source=replaced(self.source, [*self._declarations(), *self._edits]),
                           what=what + (f", {places(lines)}" if lines else ""),
                           knobs=tuple(knob.name for knob in self.knobs))

    @abstractmethod
    def _declarations(self) -> Iterator[Replacement]:
        """Yield the edits that declare the new knobs."""


def first_places(places: Iterable[Place], why_none: str) -> list[Place]:
    """Return the places that a transformation changes. Raises DoesNotApply if there are none."""
    first = list(islice(places, MOST_PLACES))
    if not first:
        raise DoesNotApply(why_none)
    return first


def replaced(source: str, edits: Iterable[Replacement], begin: int = 0,
             end: int | None = None) -> str:
    """Return a part of a source with replacements made, without those that overlap earlier ones."""
    parts, at = list[str](), begin
    stop = len(source) if end is None else end
    for edit in sorted(edits, key=lambda edit: (edit.begin, -edit.end)):
        if at <= edit.begin and edit.end <= stop:
            parts += [source[at:edit.begin], edit.text]
            at = edit.end
    return "".join([*parts, source[at:stop]])


def free_name(source: str, name: str, taken: Collection[str] = ()) -> str:
    """Return a name that the source does not use: `SUMS`, `SUMS_2`, ..."""
    used = set(re.findall(r"[A-Za-z_]\w*", source)) | set(taken)
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}_{number}"
    return free


def places(lines: Sequence[int]) -> str:
    """Return lines in words: `line 14`, `lines 14 and 20`."""
    unique = sorted(set(lines))
    if len(unique) == 1:
        return f"line {unique[0]}"
    return f"lines {', '.join(map(str, unique[:-1]))} and {unique[-1]}"
