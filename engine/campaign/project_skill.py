"""The project's own notes for coding agents (`project_skill`): where they are, and their text."""

from __future__ import annotations

from collections.abc import Iterable

from engine.campaign.judged_target import JudgedTarget
from engine.markdown import fenced
from harness.errors import InputError
from harness.formats.text import suggest

FILE = "SKILL.md"
MOST_CHARACTERS = 4000
"""Longer files are cut off: prerequisites and commands are at their beginning."""


def find(name: str, files: Iterable[str]) -> str:
    """Return the path of the file that `project_skill` names. Raises InputError."""
    paths, relative = list(files), name.removeprefix("./").rstrip("/")
    for path in (relative, f"{relative}/{FILE}"):
        if path in paths:
            return path
    named = sorted(path for path in paths if path.endswith(f"/{relative}/{FILE}"))
    if named:
        return named[0]
    known = [path.split("/")[-2] for path in paths if path.endswith(f"/{FILE}")]
    raise InputError(f"project_skill: the project has no committed skill {name!r}",
                     fix=suggest(name, known) if known else
                     f"name a committed file, or a folder with a {FILE}")


def brief(setup: JudgedTarget) -> str:
    """Return the skill as Markdown for agents' prompts, "" if the checkout has none."""
    name, base = setup.manifest.project_skill, setup.repo.base
    try:
        path = find(name, setup.repo.files(base)) if name else ""
    except InputError:
        path = ""  # a copy of the kernel's files need not have it
    if not path:
        return ""
    text = setup.repo.read(base, path).decode(errors="replace")
    return f"## The project's own notes\n\n{path}:\n\n" \
        f"{fenced(text.strip(), MOST_CHARACTERS, 'markdown')}\n"
