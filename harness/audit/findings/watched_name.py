"""Rules for watched names, and the tables that map names to rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from harness.verdict import Severity

R = TypeVar("R", bound="AuditRule | None")


@dataclass(frozen=True)
class AuditRule:
    """The rule and severity of a finding, and a short reason."""

    rule: str
    severity: Severity
    why: str


def table(*groups: tuple[R, str]) -> dict[str, R]:
    """Return a table that maps each name of a group to the group's rule."""
    return {name: rule for rule, names in groups for name in names.split()}
