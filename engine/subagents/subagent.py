"""A subagent: a prompt, the limits of its work, and the sources and machines that it is for."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MARKER_BYTES = 8 << 10
"""Markers of a language are looked for in this many bytes at a source's start."""

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


class PromptParameter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that fills in the prompt: `{{ name }}`."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    description: str
    type: Literal["text", "number"] = "text"
    required: bool = False
    value: str | int | float = ""


class LanguageMatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sources that a subagent is for: an extension must match, and a marker if it has any."""

    extensions: tuple[str, ...]
    markers: tuple[str, ...] = ()
    confidence: Annotated[float, Meta(ge=0, le=10)] = 0.5
    """What each marker adds to the score of 1."""

    def score(self, path: str, head: str) -> float:
        """Return how well a source matches, 0 if not; `head` is its first MARKER_BYTES."""
        count = sum(marker in head for marker in self.markers)
        if PurePosixPath(path).suffix not in self.extensions or (self.markers and not count):
            return 0.0
        return 1.0 + count * self.confidence


class SubagentFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A definition's fields, without the prompt and the limits."""

    name: Name
    description: Annotated[str, Meta(min_length=1, max_length=300)]
    parameters: tuple[PromptParameter, ...] = ()
    language_match: LanguageMatch | None = None
    source_language: str = ""
    """The only language that it starts from, "" for any."""
    target_language: str = ""
    """The language that it writes, "" if it keeps the source's."""
    requires: tuple[str, ...] = ()
    """Python packages and programs that it needs; `a|b` means one of the two."""


class Subagent(SubagentFields, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A subagent as the registry found it; `system_prompt` is a template."""

    system_prompt: str
    step_limit: int = 200
    """Limit of the model's calls for one task; 0 leaves this and other limits to the campaign."""
    cost_limit_usd: float = 0.0
    timeout_s: float = 0.0
    model: str = ""
    """The model to use, "" for the campaign's."""
    path: str = ""
    """The folder that its definition comes from."""

    def score(self, path: str, text: str) -> float:
        """Return how well it matches a source; 0 if it does not, or has no `language_match`."""
        head = text.encode(errors="replace")[:MARKER_BYTES].decode(errors="replace")
        return self.language_match.score(path, head) if self.language_match else 0.0
