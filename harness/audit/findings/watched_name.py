"""A watched name's rule, and how the tables of watched names are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from harness.verdict import Severity

R = TypeVar("R", bound="AuditRule | None")


@dataclass(frozen=True)
class AuditRule:
    """A finding's rule and severity, and what is wrong in a few words."""

    rule: str
    severity: Severity
    why: str


def table(*groups: tuple[R, str]) -> dict[str, R]:
    """Return a table from every name of a group to the group's rule."""
    return {name: rule for rule, names in groups for name in names.split()}
