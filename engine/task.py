"""A slot's task: what its worker is asked to do, and the message by which it reports progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

SlotKind = Literal["fixed", "planned", "rewrite"]
AGENT_BACKENDS = ("cli", "agent")
"""Backends whose slots a coding agent works in, with the prompt of a subagent."""
GLOBAL = "global"
"""The scope of work on all config classes; any other scope names some of them."""


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of the same slot to repair, whose files lie in `tree`.

    It is attempt number `attempt` of at most `of`; `complaint` is why the candidate was rejected.
    """

    attempt: int
    of: int
    candidate: str
    tree: str
    changed: tuple[str, ...]
    deleted: tuple[str, ...]
    complaint: str


class SplitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, whose files lie in `tree`, to use for some config classes only, and why."""

    candidate: str
    tree: str
    faster: tuple[str, ...]
    slower: tuple[str, ...]
    others: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    reason: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one slot: one hypothesis, tried in a worktree of its own."""

    slot: str
    kind: SlotKind
    backend: str
    hypothesis: str
    bottleneck: str
    """The bottleneck that it attacks, in words; "" if no single one."""
    seed: int
    trials: int
    knobs: tuple[str, ...] = ()
    """The knobs that a search moves; () for all of them."""
    option: str = ""
    """What the backend uses: a template's name, a patch's path, a command's name."""
    round: int = 0
    """Its round; 0 if not recorded."""
    brief: str = ""
    """More for an agent's prompt, as Markdown: what was tried, what the review demands."""
    repair: RepairRequest | None = None
    split: SplitRequest | None = None
    scope: str = GLOBAL
    """The config classes that its hypothesis is about; the candidate is judged on all of them."""
    idea: str = ""
    """The key of the idea or strategy that it follows, "" if none."""
    limiter: str = ""
    """The limiter of the bottleneck that the hypothesis is aimed at."""
    config_class: str = ""
    """The config class of that bottleneck, "" if it is not about a single one."""
    subagent: str = ""
    """The subagent whose system prompt its model works with, "" if no model works on it."""
    attempt: int = 0
    """The number of the attempt in its slot and round, from 1; 0 before it begins."""
    instructions: str = ""
    """The model's task as Markdown, "" for making the kernel faster."""


def scope_of(tasks: Sequence[Task]) -> str:
    """Return the scope that all tasks share, GLOBAL if they differ."""
    scopes = {task.scope for task in tasks}
    return scopes.pop() if len(scopes) == 1 else GLOBAL


class AgentProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a language model is with its attempt in a slot."""

    began_at: float
    """Seconds since the epoch."""
    step: int
    step_limit: int
    """0 for none."""
    cost_usd: float | None
    """The cost of the attempt so far, None if unknown."""
    command: str = ""
    """Its last command, in one line."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer of a language model cost an attempt of a slot."""

    round: int
    slot: str
    model: str
    cost_usd: float | None
    """None if the price is unknown."""
    attempt: int = 1
    tokens_read: int = 0
    tokens_written: int = 0
    answers: int = 1
    """How many answers it sums up: a coding agent may report their cost together."""


class SlotProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's live stage; `done` is a share of 1."""

    slot: str
    stage: str
    detail: str = ""
    done: float | None = None
    agent: AgentProgress | None = None
