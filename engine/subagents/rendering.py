"""Renders a subagent's system prompt: a template, filled with facts of one slot."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.subagents import prompt_template
from engine.subagents.subagent import Subagent
from harness.errors import InputError
from harness.formats.text import one_line, plain
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits

MAX_PROMPT, LONGEST_FACT = 64 << 10, 400
LIMITS = Limits(wall_s=10.0, memory_bytes=512 << 20, output_bytes=8 << 20)
"""Limits of the process that renders a prompt which is not kopt's own."""


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt may say of the slot that it is for; every fact is one line of text."""

    op: str = ""
    source: str = ""
    """The kernel's file."""
    entry: str = ""
    """The function that is measured, "" for a benchmark of the project."""
    language: str = ""
    """The language of the source, as the planner detected it."""
    device: str = ""
    """The device that kernels are measured on, such as `NVIDIA H200`."""
    python: str = "python3"
    """The Python of the target."""
    edit: tuple[str, ...] = ()
    """Globs of the files that a candidate may change."""


def system_prompt(subagent: Subagent, slot_facts: SlotFacts,
                  values: Mapping[str, str | float] | None = None) -> str:
    """Return the system prompt for a slot, with values for the subagent's parameters.

    Raises InputError if the template cannot be rendered or a required value is missing.
    """
    slot_values = dict(values or {})
    for parameter in subagent.parameters:
        if parameter.required and not slot_values.get(parameter.name, parameter.value):
            raise InputError(f"the parameter {parameter.name!r} has no value", where=subagent.path)
    facts = {name: tuple(one_line(item, LONGEST_FACT) for item in value)
             if isinstance(value, tuple) else one_line(value, LONGEST_FACT)
             for name, value in msgspec.structs.asdict(slot_facts).items()}
    context: dict[str, Any] = {parameter.name: parameter.value for parameter in subagent.parameters}
    context |= {name: one_line(value, LONGEST_FACT) if isinstance(value, str) else value
                for name, value in slot_values.items()}
    context |= facts | {"source_language": subagent.source_language,
                        "target_language": subagent.target_language}
    is_kopts = Path(subagent.path).is_relative_to(prompt_template.BUILT_IN)
    try:
        text = (prompt_template.render if is_kopts else _render_apart)(
            subagent.system_prompt, context)
    except ValueError as error:
        raise InputError(f"the prompt cannot be rendered: {one_line(str(error), LONGEST_FACT)}",
                         where=subagent.path) from error
    return plain(text, MAX_PROMPT).strip() + "\n"


def _render_apart(template: str, context: Mapping[str, Any]) -> str:
    """Return a template filled in by a guarded process: it may loop, or take all memory.

    Raises ValueError if it cannot be rendered.
    """
    with tempfile.TemporaryDirectory() as folder:
        (request := Path(folder) / "prompt.json").write_bytes(
            msgspec.json.encode({"template": template, "context": context}))
        outcome = guard.run([sys.executable, "-I", prompt_template.__file__, str(request)],
                            cwd=Path(folder), limits=LIMITS, confine=Confine(cards=False))
    if not outcome.ok:
        raise ValueError(outcome.describe(LIMITS))
    answer = msgspec.json.decode(outcome.stdout, type=dict[str, str])
    if "fault" in answer:
        raise ValueError(answer["fault"])
    return answer["text"]
