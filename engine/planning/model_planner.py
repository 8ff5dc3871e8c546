"""Asks a language model for hypotheses; what it answers is checked, and never needed.

An answer that is late, nonsense or repeats ideas leaves its slots to the ideas of `idea_source`.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from engine.planning import idea_source
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.idea_source import PlannedIdea
from harness.formats.quantities import counted
from harness.formats.text import plain

ANSWER_S = 180.0
POLL_S = 0.1
SHORTEST, LONGEST, WORDS = 20, 300, 4
"""Characters and words of a hypothesis that can be one."""
MAX_ANSWER, MAX_BRIEF = 100_000, 36_000
SUBAGENT = "planner"
"""The subagent whose system prompt says what a hypothesis is and how to answer."""
_TASK = """\

# Your task

Propose {count} hypotheses.

## Bottlenecks of the present best, the heaviest first

{bottlenecks}

{brief}
"""


class LanguageModel(Protocol):
    """A language model that answers a prompt with a text. Raises any exception if it cannot."""

    def ask(self, prompt: str) -> str: ...


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """The usable ideas of a model's answer, and what people are told about it."""

    ideas: tuple[PlannedIdea, ...] = ()
    note: str


def suggest(model: LanguageModel, instructions: str, bottlenecks: Sequence[TunableBottleneck],
            brief: str, count: int, known: Sequence[str], *, timeout_s: float = ANSWER_S,
            is_cancelled: Callable[[], bool] = lambda: False) -> Suggestions:
    """Ask for `count` hypotheses that differ from the `known` ones; a model's fault is a note."""
    listed = "\n".join(
        f"- {own.bottleneck.id}: {own.bottleneck.limiter} {own.bottleneck.config_class}: "
        f"{own.bottleneck.detail}; {own.bottleneck.advice}" for own in bottlenecks)
    prompt = instructions + _TASK.format(bottlenecks=listed or "- none is known",
                                         brief=plain(brief, MAX_BRIEF), count=count)
    answer, fault = _within(timeout_s, lambda: model.ask(prompt), is_cancelled)
    if fault:
        return Suggestions(note=f"planned without the model: {fault}")
    stated = _stated(answer, bottlenecks)
    usable = idea_source.distinct(stated, known)[:count]
    if not stated:
        return Suggestions(note="planned without the model: its answer has no usable hypothesis")
    repeats = len(stated[:count]) - len(usable)
    dropped = f"; {counted(repeats, 'repeat')} left out" if repeats > 0 else ""
    return Suggestions(ideas=tuple(usable), note=(
        f"the model planned {counted(len(usable), 'idea')} of {count}{dropped}"))


def _stated(answer: str, bottlenecks: Sequence[TunableBottleneck]) -> list[PlannedIdea]:
    """Return the hypotheses of an answer that can be ones, in their order."""
    by_id = {own.bottleneck.id: own for own in bottlenecks}
    match = re.search(r"\[.*\]", answer[:MAX_ANSWER], re.DOTALL)
    try:
        entries = json.loads(match[0]) if match else []
    except (ValueError, RecursionError):
        return []
    ideas = []
    for entry in entries:
        text = entry.get("hypothesis") if isinstance(entry, dict) else None
        if not isinstance(text, str):
            continue
        sentence = re.split(r"(?<=[.!?])\s", " ".join(plain(text, 4 * LONGEST).split()))[0]
        if SHORTEST <= len(sentence) <= LONGEST and len(re.findall(r"[a-zA-Z]{2,}", sentence)) \
                >= WORDS:
            ideas.append(PlannedIdea(
                key=f"model-{zlib.crc32(sentence.encode(errors='replace')):08x}",
                text=sentence.rstrip("."), tunable=by_id.get(str(entry.get("bottleneck")))))
    return ideas


def _within(timeout_s: float, work: Callable[[], str],
            is_cancelled: Callable[[], bool]) -> tuple[str, str]:
    """Return what some work returns, and why there is nothing; a late answer is dropped."""
    results: queue.Queue[tuple[str, str]] = queue.Queue()

    def run() -> None:
        try:
            results.put((str(work()), ""))
        except Exception as error:  # whatever the model's client raises
            results.put(("", plain(f"{type(error).__name__}: {error}", 200)))

    threading.Thread(target=run, name="model-planner", daemon=True).start()
    until = time.monotonic() + timeout_s
    while time.monotonic() < until and not is_cancelled():
        try:
            return results.get(timeout=POLL_S)
        except queue.Empty:
            continue
    return "", "the campaign ends" if is_cancelled() else f"no answer within {timeout_s:g} s"
