"""The facts of a target and its device that a subagent's prompt may state."""

from __future__ import annotations

from collections.abc import Sequence

from engine.subagents.rendering import SlotFacts
from harness.benchmark.spec.command_target import CommandTarget
from harness.tasks.target import Target


def of_target(target: Target | CommandTarget, *, edit: Sequence[str], device: str,
              python: str | None = None, language: str = "") -> SlotFacts:
    """Return the facts; `device` is a model's name, `language` what the source was detected as."""
    return SlotFacts(
        op=target.op, source=target.source, language=language or target.language, device=device,
        entry="" if isinstance(target, CommandTarget) else target.entry,
        edit=tuple(edit), python=python or "python3")
