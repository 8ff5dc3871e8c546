"""The table of strategies: what to try against which limit of a kernel, for planner and people."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from typing import Annotated, Literal

import msgspec

from engine.knowledge.page_files import BUILT_IN
from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.yaml_decode import decode

FILE = "strategies.yaml"
UNKNOWN_LIMIT = "keep more in flight, and move less"


class StrategyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row: where it is worth trying, what to try, and what to expect of it."""

    key: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+$")]
    """The name of the row, which the journal records for slots that follow it."""
    text: str
    """A sentence for an agent; {column} stands for the column that a class's time grows with."""
    against: str = ""
    """A pattern for the name of the bottleneck, "" for all."""
    symptom: str = ""
    """A pattern for what a profile shows of it, such as a stall reason, "" for nothing."""
    ops: tuple[str, ...] = ()
    """Classes of ops, () for all; likewise for `languages`."""
    languages: tuple[str, ...] = ()
    on: Literal["", "cpu", "gpu"] = ""
    shows: bool = False
    """Whether its text is the advice that kopt shows with such a bottleneck."""
    review: Literal["", "review", "instructions", "state of the art"] = ""
    """The depth of the stagnation review that proposes it."""
    transformations: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    knobs: str = ""
    """A pattern for the names of knobs."""
    gain: str
    risk: str
    source: str

    def fits(self, limiter: str, place: StrategyPlace) -> bool:
        """Return whether the row is for a limiter ("" if unknown); a review's row never is."""
        return not self.review and (not self.against or bool(
            limiter and re.search(self.against, limiter))) and self.fits_in(place)

    def fits_in(self, place: StrategyPlace) -> bool:
        return (not self.ops or place.op in self.ops) \
            and (not self.languages or place.language in self.languages) \
            and self.on in ("", "gpu" if place.on_gpu else "cpu")


class StrategyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a campaign that rows select on: op class, language, kind of device."""

    op: str = ""
    language: str = ""
    on_gpu: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    strategies: tuple[StrategyRow, ...]


@functools.cache
def strategies() -> tuple[StrategyRow, ...]:
    """Return all rows in their order. Raises InputError for an invalid table."""
    document = yaml_document.parse((BUILT_IN / FILE).read_text(encoding="utf-8"), FILE)
    rows = decode(document, _Table, msgspec.convert).strategies
    keys = [row.key for row in rows]
    for row in rows:
        if keys.count(row.key) > 1:
            raise InputError(f"the strategy {row.key!r} is listed twice", where=FILE)
    return rows


def against(limiter: str, place: StrategyPlace) -> Iterator[StrategyRow]:
    """Yield the rows for a bottleneck, those for this limit before those for any."""
    rows = [row for row in strategies() if row.fits(limiter, place)]
    yield from sorted(rows, key=lambda row: not row.against)


def seen_in(text: str, place: StrategyPlace) -> Iterator[tuple[str, StrategyRow]]:
    """Yield the symptoms that a text names, each with the row against it."""
    for row in strategies():
        if row.symptom and row.fits_in(place) and (
                match := re.search(row.symptom, text, re.IGNORECASE)):
            yield match[0], row


def listing(transformations: Collection[str]) -> frozenset[str]:
    """Return the keys of the rows that list one of these transformations."""
    return frozenset(row.key for row in strategies()
                     if not set(transformations).isdisjoint(row.transformations))


def shown(limiter: str) -> StrategyRow | None:
    """Return the row whose sentence kopt shows with a bottleneck, None for an unknown one."""
    return next((row for row in strategies() if row.shows and re.search(row.against, limiter)),
                None)


def advice(limiter: str, column: str = "") -> str:
    """Return kopt's advice on a bottleneck."""
    row = shown(limiter)
    return UNKNOWN_LIMIT if row is None else row.text.replace("{column}", column)


def review_sentences(depth: str) -> dict[str, str]:
    """Return the sentences that a stagnation review of a depth proposes, by the rows' keys."""
    return {row.key: row.text for row in strategies() if row.review == depth}
