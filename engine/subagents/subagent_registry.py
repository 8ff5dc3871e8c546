"""Finds subagents: the built-in ones, then those of the user, then those of the project.

A later folder overrides an earlier subagent of the same name, and need only state what it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine import data_folders
from engine.subagents import subagent_files
from engine.subagents.prompt_template import BUILT_IN
from engine.subagents.subagent import Subagent
from engine.subagents.subagent_files import DEFINITION, PROMPT
from harness.errors import InputError, KoptError
from harness.formats.text import one_line, suggest

DEFAULT = "general-kernel-optimization"


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """All subagents by name, and one line for each file that could not be used."""

    subagents: dict[str, Subagent]
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.subagents))

    def get(self, name: str) -> Subagent:
        """Return a subagent. Raises InputError if there is none of that name."""
        if name not in self.subagents:
            raise InputError(f"there is no subagent {name!r}",
                             fix=suggest(name, self.names) or "kopt subagents lists them")
        return self.subagents[name]

    def for_source(self, path: str, text: str) -> dict[str, Subagent]:
        """Return the subagents that may work on a source, those that match it best first."""
        scores = {name: subagent.score(path, text) for name, subagent in self.subagents.items()
                  if subagent.language_match is None or subagent.score(path, text)}
        return {name: self.subagents[name]
                for name in sorted(scores, key=lambda name: (-scores[name], name))}


def load(project: Path | None) -> Registry:
    """Read all subagents. A bad file becomes a problem."""
    subagents: dict[str, Subagent] = {}
    fields: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for root in data_folders.overriding(BUILT_IN, project):
        seen: dict[str, Path] = {}
        for folder in _definitions(root, problems):
            try:
                for subagent, raw in subagent_files.read(folder, fields, subagents):
                    if subagent.name in seen:
                        raise InputError(f"{seen[subagent.name]} already defines {subagent.name!r}",
                                         where=str(folder), fix="rename one of them")
                    seen[subagent.name] = folder
                    subagents[subagent.name], fields[subagent.name] = subagent, raw
            except (KoptError, OSError) as error:
                problems.append(one_line(str(error), 500))
    return Registry(subagents=subagents, problems=tuple(problems))


def _definitions(root: Path, problems: list[str]) -> Iterator[Path]:
    """Yield the folders with a definition; one with a prompt only is a problem."""
    try:
        inner = sorted(root.iterdir()) if root.is_dir() else []
    except OSError as error:
        problems.append(f"{root}: cannot be read: {error.strerror}")
        return
    for folder in inner:
        if (folder / DEFINITION).exists():
            yield folder
        elif (folder / PROMPT).exists():
            problems.append(f"{folder}: has a {PROMPT} but no {DEFINITION}")
