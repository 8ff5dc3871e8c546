"""The transformations by name, and which of them apply to a source."""

from __future__ import annotations

import logging
import re

import msgspec

from engine.transformations.c.c_transformations import C_TRANSFORMATIONS
from engine.transformations.transformation import DoesNotApply, Transformation
from engine.transformations.triton.triton_transformations import TRITON_TRANSFORMATIONS
from harness.errors import InputError

BY_LANGUAGE = {"c": C_TRANSFORMATIONS, "triton": TRITON_TRANSFORMATIONS}
TRANSFORMATIONS: tuple[Transformation, ...] = (*C_TRANSFORMATIONS, *TRITON_TRANSFORMATIONS)
log = logging.getLogger("kopt.engine")
LONGEST_SOURCE = 100_000
"""Characters of the longest source that is looked at."""


class ApplicableChange(msgspec.Struct, frozen=True, kw_only=True):
    """A transformation that applies to a source, what it would change there, and its knobs."""

    name: str
    what: str
    knobs: tuple[str, ...] = ()


def find(name: str) -> Transformation | None:
    return next((own for own in TRANSFORMATIONS if own.name == name), None)


def language_of(source: str, language: str) -> str:
    """Return the language whose transformations a source gets: a Python file may hold Triton."""
    return "triton" if language == "python" and re.search(r"\btriton\.jit\b", source) else language


def applicable(source: str, language: str) -> tuple[ApplicableChange, ...]:
    """Return the transformations that apply to a source, in their order."""
    if len(source) > LONGEST_SOURCE:
        return ()
    found = []
    for each in BY_LANGUAGE.get(language_of(source, language), ()):
        try:
            changed = each.apply(source)
        except (DoesNotApply, InputError):
            continue
        except Exception:  # an unforeseen form of source must not end a campaign
            log.exception("%s failed on a source", each.name)
            continue
        found.append(ApplicableChange(name=each.name, what=changed.what, knobs=changed.knobs))
    return tuple(found)
