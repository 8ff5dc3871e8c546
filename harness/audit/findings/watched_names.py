"""The names and texts that the audit watches, and why; the names are in watched.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.verdict import Severity


@dataclass(frozen=True)
class AuditRule:
    """The rule and severity of a finding, and a short reason."""

    rule: str
    severity: Severity
    why: str


_DATA = tomllib.loads(Path(__file__).with_name("watched.toml").read_text())
NAMES = {key: frozenset(words.split()) for key, words in _DATA["names"].items()}
_MEMORY = re.compile(r"/proc/[^/\s]*/mem\b|/dev/k?mem\b")
_SYSTEM = re.compile(r"/proc/[^\s]*|/dev/shm\b|/tmp/|/etc/|/home/|/root/|/sys/"
                     r"|(?:^|/)\.\.(?:/|$)")
_INCLUDE = re.compile(r"#\s*include[^\n]*")
_FETCH = re.compile(r"\bpip3?\b.*\binstall\b|\bcurl\b|\bwget\b|\bgit\s+clone\b"
                    r"|\b(?:conda|mamba|apt|apt-get|uv|npm)\b.*\b(?:install|add)\b", re.DOTALL)
_CLOCK = re.compile(r"\brdtscp?\b|%(?:globaltimer|clock)|\bcntvct_el0\b|\bs_mem(?:real)?time\b")
_PREFIX = re.compile(r"^(?:__builtin_|__libc_|_{1,2})")
"""Prefixes of other names for the same function, as `__libc_fork`."""


def _rules(column: str) -> dict[str, AuditRule]:
    return {name: AuditRule(part["rule"], part["severity"], part["why"])
            for part in _DATA["rules"] for name in part.get(column, "").split()}


_PYTHON, ATTRIBUTES = _rules("python"), _rules("attributes")
_C, C_CALLS, _C_PREFIXES = _rules("c"), _rules("c_calls"), _rules("c_prefixes")
C_NAMES = (*_C, *C_CALLS)


def python_rule(name: str) -> AuditRule | None:
    """Return the rule of the longest prefix of a dotted name, None if none is watched."""
    while name and name not in NAMES["not_watched"]:
        if name in _PYTHON:
            return _PYTHON[name]
        name = name.rpartition(".")[0]
    return None


def c_rule(name: str, *, called: bool) -> AuditRule | None:
    """Return the rule for a C name, None if it is not watched."""
    for known in (name, _PREFIX.sub("", name, count=1)):
        if (rule := _C.get(known) or (C_CALLS.get(known) if called else None)) is not None:
            return rule
    return next((rule for prefix, rule in _C_PREFIXES.items() if name.startswith(prefix)), None)


def below(name: str, prefixes: Iterable[str]) -> bool:
    """Return whether a dotted name is one of the prefixes, or below one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def fetches(text: str) -> bool:
    """Return whether a command fetches a package or a file."""
    return _FETCH.search(text) is not None


def reads_clock(assembly: str) -> bool:
    return _CLOCK.search(assembly) is not None


def watched_text(text: str) -> Iterator[tuple[AuditRule, str]]:
    """Yield (rule, name) for what a text of a source names: memory, files outside the project."""
    if _MEMORY.search(text):
        yield AuditRule("files", "reject", "names a process's memory"), ""
    elif match := _SYSTEM.search(_INCLUDE.sub("", text)):
        yield AuditRule("files", "flag", "names a file outside the project"), match[0][:40]
