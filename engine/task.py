"""What a worker is asked to do: the task of one slot, and what to repair or split."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.journal.records import GLOBAL, SlotKind

pass



def scope_of(tasks: Sequence[Task]) -> str:
    """Return what a round of these is about: the one config class that all are, else all classes.
    """
    scopes = {task.scope for task in tasks}
    return scopes.pop() if len(scopes) == 1 else GLOBAL


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of the same slot that is to be mended; `tree` holds its files."""

    attempt: int
    of: int
    candidate: str
    tree: str
    changed: tuple[str, ...]
    deleted: tuple[str, ...]
    complaint: str


class SplitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is to be taken for some config classes alone; `tree` holds its files.

    `reason` is the ruling.
    """

    candidate: str
    tree: str
    faster: tuple[str, ...]
    slower: tuple[str, ...]
    others: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    reason: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One slot's work: one hypothesis, in one worktree of its own.

    `worktree` holds the best commit's files; what a worker leaves there is its candidate.
    `baseline` is a plain checkout with the reference, `scratch` a folder to write in.
    """

    slot: str
    kind: SlotKind
    backend: str
    hypothesis: str
    bottleneck: str
    seed: int
    trials: int
    knobs: tuple[str, ...] = ()
    option: str = ""
    """What the backend is to use: a template's name, a patch's path, a cli's name."""
    round: int = 0
    """The round that it is of, 0 where that is not told."""
    brief: str = ""
    """What an agent is told besides, as Markdown: what was tried, what is asked of it now."""
    repair: RepairRequest | None = None
    split: SplitRequest | None = None
    scope: str = GLOBAL
    """The config classes that its hypothesis is about, by name; it is judged by all of them."""
