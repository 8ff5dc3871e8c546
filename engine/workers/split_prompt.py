"""Asks an agent to split a change of its own that only some config classes gain from."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from engine.split import regions
from engine.task import SplitRequest
from engine.workers import class_sizes
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.text import plain
from harness.target import Target

REQUEST = """## Kernel split

Your last change is correct, but not all config classes gain from it: {reason}
{classes}
The files of that change are in {folder}{deleted}; {here}.

Keep the old kernel as the default. Write the changed kernel next to it under a name of its own, and
have the entry point dispatch on {columns}, so that only the classes that gain take the changed
kernel. All classes are measured again: those must be faster, the others as fast as before.

"""


def prompt(request: SplitRequest, target: Target | CommandTarget, home: Path, *,
           is_repair: bool) -> str:
    """Return the prompt's section on a split, after copying the change's files below `home`.

    If `is_repair`, the worktree holds a split that is to be repaired, otherwise the old kernel.
    """
    folder = home / "candidate"
    for path in request.changed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(request.tree) / path, folder / path)
    sides = (("faster", request.faster), ("slower", request.slower), ("neither", request.others))
    deleted = plain(", ".join(request.deleted), 500)
    return REQUEST.format(
        reason=plain(request.reason, 1000) or "some are faster, others slower",
        classes="".join(f"- {word}: {_classes(names, target)}\n" for word, names in sides if names),
        folder=folder, columns=_columns(request, target),
        deleted=f" (it deletes {deleted})" if deleted else "",
        here="this folder holds your split of it" if is_repair else
             "this folder holds the old kernel")


def _classes(names: Iterable[str], target: Target | CommandTarget) -> str:
    """Return classes with their sizes; the names of a benchmark's classes contain them."""
    if isinstance(target, CommandTarget):
        return "; ".join(plain(name, 200) for name in names)
    return "; ".join(f"{plain(name, 200)} ({sizes})" if (sizes := ", ".join(
        f"{size}={value}" for size, value in target.config_class(name).shape.items())) else name
        for name in names)


def _columns(request: SplitRequest, target: Target | CommandTarget) -> str:
    """Return what tells the classes apart: the columns, or sizes, that all of them have."""
    columns = regions.shared([point for name in (*request.faster, *request.slower, *request.others)
                            for point in class_sizes.points(name, target)])
    return plain(", ".join(columns), 300) or "what tells these classes apart"
