"""The prompt file of a `cli` worker's task, as Markdown; `prompt.md.jinja` has the words."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.split.languages import conditions
from engine.task import SplitRequest, Task
from engine.workers import class_sizes
from engine.workers.protocol import WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.text import plain
from harness.tasks.target import ConfigClass, Target

if TYPE_CHECKING:  # jinja2 is imported when an agent is asked
    from jinja2 import Template

MAX_BRIEF = 40_000
"""Characters of a brief: reviews, splits, lessons and the history each have their own limit."""


def prompt_text(task: Task, bench: WorkerBench) -> str:
    """Return the prompt for a task. The files of a change to split are copied to the worker's HOME.
    """
    target, split = bench.target, task.split
    folder = Path(bench.scratch) / "home" / "candidate"
    split_classes: list[tuple[str, str]] = []
    if split is not None:
        for path in split.changed:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(split.tree) / path, folder / path)
        split_classes = [("faster", _classes(split.faster, target)),
                         ("slower", _classes(split.slower, target)),
                         ("neither", _classes(split.others, target))]
    return _template().render(
        task=task, target=target, folder=folder, brief=plain(task.brief, MAX_BRIEF).rstrip(),
        edit=", ".join(f"`{glob}`" for glob in bench.edit),
        classes="" if isinstance(target, CommandTarget) else "; ".join(
            f"{own.name} ({_sizes(own)})" for own in target.classes),
        split_classes=split_classes,
        split_columns="" if split is None else _columns(split, target))


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True,
                              undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["plain"] = plain
    return environment.get_template("prompt.md.jinja")


def _sizes(config_class: ConfigClass) -> str:
    return ", ".join(f"{size}={value}" for size, value in config_class.shape.items())


def _classes(names: Iterable[str], target: Target | CommandTarget) -> str:
    """Return classes with their sizes; the names of a benchmark's classes contain them."""
    if isinstance(target, CommandTarget):
        return "; ".join(plain(name, 200) for name in names)
    return "; ".join(
        f"{plain(name, 200)} ({sizes})" if (sizes := _sizes(target.config_class(name))) else name
        for name in names)


def _columns(request: SplitRequest, target: Target | CommandTarget) -> str:
    """Return what tells the classes apart: the columns, or sizes, that all of them have."""
    names = (*request.faster, *request.slower, *request.others)
    columns = conditions.shared([point for name in names
                                 for point in class_sizes.points(name, target)])
    return plain(", ".join(columns), 300) or "what tells these classes apart"
