"""What an agent is told of a change of its own that only some config classes gain by."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from engine.split import regions
from engine.task import SplitRequest
from engine.workers import class_split
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.text import plain
from harness.target import Target

ASK = """## Kernel split

A change of yours is right, and divides the config classes: {told}
{classes}
The files of that change lie in {folder}{deleted}; {here}.

Keep the kernel as it was as the default, write the changed one beside it under a name of its own,
and have the entry point dispatch on {columns}, so that only the classes that gain take the changed
one. All classes are measured again: those that gain must be faster, the others as fast as before.

"""


def asked(wanted: SplitRequest, target: Target | CommandTarget, home: Path, *, mends: bool) -> str:
    """Return the part of a prompt, once the files to be split lie below an agent's `home`; with
    `mends` its worktree holds a split that is to be mended, else the kernel as it was.
    """
    folder = home / "candidate"
    for path in wanted.changed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(wanted.tree) / path, folder / path)
    sides = (("faster", wanted.faster), ("slower", wanted.slower), ("neither", wanted.others))
    return ASK.format(
        told=plain(wanted.reason, 1000) or "some are faster, others slower",
        classes="".join(f"- {word}: {_named(names, target)}\n" for word, names in sides if names),
        folder=folder, columns=_columns(wanted, target),
        deleted=f" (It deletes {plain(', '.join(wanted.deleted), 500)})" if wanted.deleted else "",
        here="your split of it lies in this folder" if mends else
             "this folder holds the kernel as it was")


def _named(names: Iterable[str], target: Target | CommandTarget) -> str:
    """Return classes with their sizes; those of a benchmark are called by them."""
    if isinstance(target, CommandTarget):
        return "; ".join(plain(name, 200) for name in names)
    return "; ".join(f"{plain(name, 200)} ({sizes})" if (sizes := ", ".join(
        f"{size}={value}" for size, value in target.config_class(name).shape.items())) else name
        for name in names)


def _columns(wanted: SplitRequest, target: Target | CommandTarget) -> str:
    """Return what tells the classes apart: the columns, or sizes, that all of them have."""
    found = regions.shared([point for name in (*wanted.faster, *wanted.slower, *wanted.others)
                            for point in class_split.points(name, target)])
    return plain(", ".join(found), 300) or "what tells these classes apart"
