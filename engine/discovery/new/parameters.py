"""The parameters of a new manifest as a person sees them: names, values and their origins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.text import suggest

LISTS = ("edit", "metrics", "configs", "ignore")
SCALARS = ("git_commit", "max_iterations")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter: its value as text, and the origin of that value."""

    name: str
    value: str
    origin: str = ""


Parameters = Mapping[str, Parameter]


def make_parameters(rows: Iterable[tuple[str, str, str]]) -> Parameters:
    """Return parameters from names, values and origins; an empty value has no origin."""
    return {name: Parameter(name=name, value=value, origin=origin if value else "")
            for name, value, origin in rows}


def with_given(known: Parameters, given: Mapping[str, str]) -> Parameters:
    """Return the parameters with values that a person gave. Raises InputError for unknown names."""
    for name in given:
        if name not in known:
            raise InputError(f"there is no parameter {name!r}",
                             fix=suggest(name, known) or "kopt new lists the parameters")
    return {name: Parameter(name=name, value=given[name].strip(), origin="given")
            if name in given else parameter for name, parameter in known.items()}


def typed_value(parameter: Parameter) -> object:
    """Return a parameter's value with the type that the manifest needs."""
    if parameter.name in LISTS:
        return split_list(parameter.value)
    return yaml_document.scalar(parameter.value) if parameter.name in SCALARS else parameter.value


def split_list(value: str) -> Sequence[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in value.split(",") if part.strip()]
