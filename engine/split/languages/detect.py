"""Finds the language of a target's source, if kopt can split it."""

from __future__ import annotations

from pathlib import PurePosixPath

from engine.split.languages.c_language import C
from engine.split.languages.language import Language
from engine.split.languages.python_language import Python
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.tasks.target import Target


def splits(path: str) -> bool:
    """Return whether kopt can split sources of this name."""
    return PurePosixPath(path).suffix in (".c", ".h", ".py")


def language_by_name(path: str) -> Language:
    """Return the language in which dispatchers of a file are written."""
    return Python() if path.endswith(".py") else C()


def language_of(target: Target | CommandTarget) -> Language:
    """Return the language of a target's source. Raises Refused where kopt cannot split it."""
    if not splits(target.source):
        raise Refused(f"{target.source or 'the source'} is neither C nor Python, so kopt cannot "
                      "split it", fix="leave the split to a coding agent")
    if not target.source.endswith(".py"):
        return C()
    return Python("triton" if target.language == "triton" else "python")
