"""Renders a subagent's system prompt: a template, filled with facts of one slot."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from engine.subagents.subagent import Subagent
from engine.subagents.subagent_registry import BUILT_IN
from harness.errors import InputError
from harness.formats.text import one_line, plain

if TYPE_CHECKING:  # jinja2 is imported when a prompt is rendered
    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment

MAX_PROMPT, LONGEST_FACT = 64 << 10, 400


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
    from jinja2 import TemplateError

    slot_values = dict(values or {})
    for parameter in subagent.parameters:
        if parameter.required and not slot_values.get(parameter.name, parameter.value):
            raise InputError(f"the parameter {parameter.name!r} has no value", where=subagent.path)
    facts = {name: tuple(one_line(item, LONGEST_FACT) for item in value)
             if isinstance(value, tuple) else one_line(value, LONGEST_FACT)
             for name, value in msgspec.structs.asdict(slot_facts).items()}
    context = {parameter.name: parameter.value for parameter in subagent.parameters}
    context |= {name: one_line(value, LONGEST_FACT) if isinstance(value, str) else value
                for name, value in slot_values.items()}
    try:
        text = _template(subagent.system_prompt).render(
            context | facts | {"source_language": subagent.source_language,
                              "target_language": subagent.target_language})
    except TemplateError as error:
        line = f" (line {error.lineno})" if hasattr(error, "lineno") else ""
        raise InputError(f"the prompt cannot be rendered: {error.message}{line}",
                         where=subagent.path) from error
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
            ValueError) as error:  # an expression of the template raised it
        raise InputError(f"the prompt cannot be rendered: {one_line(str(error), LONGEST_FACT)}",
                         where=subagent.path) from error
    return plain(text, MAX_PROMPT).strip() + "\n"


@functools.lru_cache(maxsize=64)
def _template(text: str) -> Template:
    return _environment().from_string(text)


@functools.cache
def _environment() -> SandboxedEnvironment:
    """A project's prompts are untrusted: they run in a sandbox and include shared parts only."""
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(loader=FileSystemLoader(BUILT_IN / "shared"), trim_blocks=True,
                                lstrip_blocks=True, keep_trailing_newline=True,
                                undefined=StrictUndefined)
