"""What a person should know of a task before its verdicts are trusted, in a line each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from engine.repository.clone import Clone
from engine.routing.source_language import uses_openmp
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.quantities import listed
from harness.tasks.target import Arg, Target

MOST_NAMED = 6
_BUILDS = re.compile(r"(GNUm|m|M)akefile|CMakeLists\.txt|meson\.build|setup\.py|.*\.(mk|cmake|sh)")
"""Names of files that may hold a build's flags; files that a command names may too."""
_PARALLEL = re.compile(r"openmp|(?<!\S)-mp\b", re.IGNORECASE)
"""Flags and packages with which compilers and builds turn on OpenMP."""


def of_target(target: Target | CommandTarget, clone: Clone, commit: str) -> tuple[str, ...]:
    """Return notes on pragmas that the build ignores and on integers drawn from 0 and 1 only.

    Verdicts flag such integers too, but the first verdict with a gain may come hours later.
    """
    return *ignored_pragmas(target, clone, commit), *_narrow(target)


def undeclared(task: Target) -> tuple[str, ...]:
    """Return the integer inputs that are drawn from 0 and 1, because nothing says more."""
    recorded = {name for each in task.classes for name in each.data or {}}
    return tuple(arg.name for arg in task.args
                 if is_undeclared(arg) and arg.name not in recorded)


def is_undeclared(arg: Arg) -> bool:
    """Return whether an argument is an integer input without a range: it is drawn from 0 and 1."""
    return arg.kind in ("input", "inout") and "int" in arg.dtype and arg.structure is None \
        and arg.low is None and arg.high is None


def _narrow(target: Target | CommandTarget) -> tuple[str, ...]:
    names = undeclared(target) if isinstance(target, Target) else ()
    return (f"drawn from 0 and 1 only, as the task gives no range: {listed(names, MOST_NAMED)}; "
        "write low and high there, such as low: 0, high: 64 (high: 2 for a mask)",) if names else ()


def ignored_pragmas(target: Target | CommandTarget, clone: Clone, commit: str) -> tuple[str, ...]:
    """Return a note if a C source has OpenMP pragmas that its build leaves out."""
    if target.language != "c" or not target.source or not uses_openmp(
            clone.read(commit, target.source).decode(errors="replace")) or any(
            map(_PARALLEL.search, _build_texts(target, clone, commit))):
        return ()
    ignored = f"the OpenMP pragmas of {target.source} are ignored, as"
    if isinstance(target, CommandTarget):
        return (f"{ignored} neither build_command nor a file of the build has -fopenmp: "
                "add it there",)
    flags = ", ".join((*target.flags, "-fopenmp"))
    return (f"{ignored} `build` lacks -fopenmp: write build: [{flags}] in the task",)


def _build_texts(target: Target | CommandTarget, clone: Clone, commit: str) -> Iterator[str]:
    """Yield the texts in which a build may turn on OpenMP: its flags, commands and files."""
    if isinstance(target, Target):
        yield from target.flags
        return
    yield from (target.setup_command, target.build_command, target.command)
    for path in clone.files(commit):
        if path in target.frozen or _BUILDS.fullmatch(PurePosixPath(path).name):
            yield clone.read(commit, path).decode(errors="replace")
