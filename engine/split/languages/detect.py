"""The language of a target's source, as far as it can be split."""

from __future__ import annotations

from pathlib import PurePosixPath

from engine.split.languages.language import C, Language
from engine.split.languages.python_language import Python
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.target import Target


def splits(path: str) -> bool:
    """Tell whether sources of this name can be split."""
    return PurePosixPath(path).suffix in (".c", ".h", ".py")


def language_by_name(path: str) -> Language:
    """Return the language that a source's splits are written in, by its name."""
    return Python() if path.endswith(".py") else C()


def language_of(target: Target | CommandTarget) -> Language:
    """Return the language of a target's source. Raises Refused where it cannot be split."""
    if not splits(target.source):
        raise Refused(f"{target.source or 'no source'} is neither C nor Python: it cannot be split",
                      fix="leave it to an agent")
    if not target.source.endswith(".py"):
        return C()
    return Python("triton" if target.language == "triton" else "python")
