"""The parameters of a new manifest as a person sees them: names, texts, where these are from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.yaml_decode import suggest

LISTS = ("edit", "metrics", "configs", "ignore")
SCALARS = ("git_commit", "max_iterations")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter as a person sees it: its value as text, and where that is from."""

    name: str
    value: str
    origin: str = ""


Parameters = Mapping[str, Parameter]


def of(rows: Iterable[tuple[str, str, str]]) -> Parameters:
    """Return parameters from names, values and origins; what has no value is from nowhere."""
    return {name: Parameter(name=name, value=value, origin=origin if value else "")
            for name, value, origin in rows}


def changed(known: Parameters, given: Mapping[str, str]) -> Parameters:
    """Return the parameters with some given by a person. Raises InputError for unknown names."""
    for name in given:
        if name not in known:
            raise InputError(f"there is no parameter {name!r}",
                             fix=suggest(name, known) or "kopt new lists those there are")
    return {name: Parameter(name=name, value=given[name].strip(), origin="given")
            if name in given else one for name, one in known.items()}


def typed(one: Parameter) -> object:
    """Return a parameter's value as a manifest has it."""
    if one.name in LISTS:
        return listed(one.value)
    return yaml_document.scalar(one.value) if one.name in SCALARS else one.value


def listed(value: str) -> Sequence[str]:
    """Return the parts of a list that is written with commas."""
    return [part.strip() for part in value.split(",") if part.strip()]
