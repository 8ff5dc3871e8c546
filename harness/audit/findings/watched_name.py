"""Rules for watched names, and the tables that map names to rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
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


_MEMORY = re.compile(r"/proc/[^/\s]*/mem\b|/dev/k?mem\b")
_SYSTEM = re.compile(r"/proc/[^\s]*|/dev/shm\b|/tmp/|/etc/|/home/|/root/|/sys/|(?:^|/)\.\./")
_INCLUDE = re.compile(r"#\s*include[^\n]*")


def watched_text(text: str) -> Iterator[tuple[AuditRule, str]]:
    """Yield (rule, name) for what a text of a source names: memory, files outside the project."""
    if _MEMORY.search(text):
        yield AuditRule("files", "reject", "names a process's memory"), ""
    elif found := _SYSTEM.search(_INCLUDE.sub("", text)):
        yield AuditRule("files", "flag", "names a file outside the project"), found[0][:40]


def table(*groups: tuple[R, str]) -> dict[str, R]:
    """Return a table that maps each name of a group to the group's rule."""
    return {name: rule for rule, names in groups for name in names.split()}
