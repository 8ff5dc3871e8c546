"""Facts for a slot's prompt: its target, its device, and the knowledge pages about them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from engine.knowledge import page_routing
from engine.subagents.rendering import SlotFacts
from engine.subagents.subagent import Subagent
from engine.workers.protocol import WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.tasks.target import ConfigClass, Target


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
    path = Path(bench.worktree) / bench.target.source
    text = path.read_text(errors="replace") if bench.target.source and path.is_file() else ""
    return page_routing.excerpt(page_routing.subject_of(
        bench.target, text, bench.device.arch,
        language=subagent.target_language if subagent else ""), project)


def config_classes(target: Target | CommandTarget) -> str:
    """Return a kernel's config classes with their sizes, "" for a benchmark."""
    if isinstance(target, CommandTarget):
        return ""
    return "; ".join(f"{config_class.name} ({sizes(config_class)})"
                     for config_class in target.classes)


def sizes(config_class: ConfigClass) -> str:
    return ", ".join(f"{size}={value}" for size, value in config_class.shape.items())
