"""A slot's prompt: facts of its target and device, knowledge pages about them, and its task."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.knowledge import page_routing
from engine.split import class_sizes
from engine.split.languages import conditions
from engine.subagents.rendering import SlotFacts
from engine.subagents.subagent import Subagent
from engine.task import SplitRequest, Task
from engine.workers.protocol import WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.text import plain
from harness.tasks.target import ConfigClass, Target

if TYPE_CHECKING:  # jinja2 is imported when an agent is asked
    from jinja2 import Template


def of_target(target: Target | CommandTarget, *, edit: Sequence[str], device: str,
              python: str | None = None, language: str = "") -> SlotFacts:
    """Return the facts; `device` is the device's model, `language` the source's if detected."""
    return SlotFacts(
        op=target.op, source=target.source, language=language or target.language, device=device,
        entry="" if isinstance(target, CommandTarget) else target.entry,
        edit=tuple(edit), python=python or sys.executable)


def knowledge(bench: WorkerBench, subagent: Subagent | None, project: Path | None) -> str:
    """Return the knowledge pages for a slot's prompt, also the project's own pages.

    For a subagent that rewrites they are about its target language.
    """
    return knowledge_of(bench.target, Path(bench.worktree), bench.device.arch, subagent, project)


def knowledge_of(target: Target | CommandTarget, tree: Path, arch: str, subagent: Subagent | None,
                 project: Path | None) -> str:
    """Return the knowledge pages for the source in `tree`, on an architecture."""
    path = tree / target.source
    text = path.read_text(errors="replace") if target.source and path.is_file() else ""
    return page_routing.excerpt(page_routing.subject_of(
        target, text, arch, language=subagent.target_language if subagent else ""), project)


def config_classes(target: Target | CommandTarget) -> str:
    """Return a kernel's config classes with their sizes, "" for a benchmark."""
    if isinstance(target, CommandTarget):
        return ""
    return "; ".join(f"{config_class.name} ({sizes(config_class)})"
                     for config_class in target.classes)


def sizes(config_class: ConfigClass) -> str:
    return ", ".join(f"{size}={value}" for size, value in config_class.shape.items())


MAX_BRIEF = 40_000
"""Characters of a brief: reviews, splits, lessons and the history each have their own limit."""


def task_prompt(task: Task, target: Target | CommandTarget, folder: Path, knowledge: str, *,
                edit: Sequence[str], python: str | None, screenings: int) -> str:
    """Return the prompt for a task; the files of a change to split lie in `folder`."""
    if task.instructions:
        return task.instructions
    split_classes: list[tuple[str, str]] = []
    if (split := task.split) is not None:
        split_classes = [("faster", _classes(split.faster, target)),
                         ("slower", _classes(split.slower, target)),
                         ("neither", _classes(split.others, target))]
    return _template().render(
        task=task, target=target, folder=folder, brief=plain(task.brief, MAX_BRIEF).rstrip(),
        knowledge=knowledge,
        edit=", ".join(f"`{glob}`" for glob in edit),
        classes=config_classes(target),
        split_classes=split_classes, screenings=screenings, python=python or sys.executable,
        split_columns="" if split is None else _columns(split, target))


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True,
                              undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["plain"] = plain
    return environment.get_template("prompt.md.jinja")


def _classes(names: Iterable[str], target: Target | CommandTarget) -> str:
    """Return classes with their sizes; the names of a benchmark's classes contain them."""
    if isinstance(target, CommandTarget):
        return "; ".join(plain(name, 200) for name in names)
    listed = {name: sizes(target.config_class(name)) for name in names}
    return "; ".join(f"{plain(name, 200)} ({listed[name]})" if listed[name] else name
                     for name in listed)


def _columns(request: SplitRequest, target: Target | CommandTarget) -> str:
    """Return the columns or sizes that distinguish the classes; all classes have them."""
    names = (*request.faster, *request.slower, *request.others)
    columns = conditions.shared([point for name in names
                                 for point in class_sizes.points(name, target)])
    return plain(", ".join(columns), 300) or "what distinguishes these classes"
