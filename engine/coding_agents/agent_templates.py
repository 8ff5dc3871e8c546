"""The known coding agents, read from `agent_templates.toml`."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.formats import shell_command

GENERIC = "generic"
"""The template for commands that print JSON lines and have no template of their own."""


class StreamRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read lines of a JSON stream for which `when` holds; all other fields are paths.

    A path is keys with dots between them; `[]` after a key stands for each item of its list.
    """

    when: dict[str, str] = {}
    text: str = ""
    is_fragment: bool = False
    """Whether a text continues the text of the event before it."""
    commands: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    error: str = ""
    step: str = ""
    """Each different value counts as one request to the model."""
    steps: str = ""
    cost_usd: str = ""
    step_cost_usd: str = ""


class AgentTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a coding agent runs in a slot."""

    title: str
    install: str = ""
    tried: str = ""
    """The version that has worked in a slot."""
    command: str = ""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its API key; it needs one of them."""
    env: tuple[str, ...] = ()
    """Further environment variables that it may see."""
    stream: tuple[StreamRule, ...] = ()
    printed: str = ""
    """A regular expression for printed lines, whose groups are `steps` and `cost_usd`."""

    @property
    def program(self) -> str:
        """The program that it starts, "" if the manifest names it."""
        words = shell_command.words_of(self.command.replace("{{", "{")) if self.command else ()
        return next((word for word in words if "=" not in word), "")

    def problems(self) -> Iterator[str]:
        """Yield what this machine lacks for it, one line each."""
        if self.program and shutil.which(self.program) is None:
            yield f"the program {self.program!r} is not installed: {self.install}"
        if self.keys and not any(os.environ.get(name) for name in self.keys):
            yield f"{self.title} has no key: none of {', '.join(self.keys)} is set"


@functools.cache
def templates() -> dict[str, AgentTemplate]:
    """Return the templates by name."""
    data = Path(__file__).with_name("agent_templates.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[str, AgentTemplate])


def names() -> tuple[str, ...]:
    """Return the names of the coding agents that have a command."""
    return tuple(name for name, agent in templates().items() if agent.command)
