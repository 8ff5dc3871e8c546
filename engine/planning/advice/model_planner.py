"""Asks a language model for hypotheses and checks its answer; planning works without it.

If the answer is late, unusable or repeats ideas, slots get the ideas of `idea_source`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import msgspec

from engine.context import EngineContext
from engine.history.history import CampaignHistory
from engine.journal.decoded.plan_event import RoundPlan
from engine.markdown import fenced
from engine.planning import idea_source, kernel_routing
from engine.planning.advice import model_request
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.plan_inputs import PlanInputs, planned_share
from engine.planning.pool_size import authors
from engine.planning.stagnation import PlannedIdea
from engine.workers import slot_facts
from engine.workers.model import model_process
from engine.workers.model.model_process import RequestAnswer
from harness.formats.quantities import counted
from harness.formats.text import one_line, plain, read_text

SHORTEST, LONGEST, WORDS = 20, 300, 4
"""Least and most characters, and least words, of a usable hypothesis."""
MAX_SOURCE, MAX_BRIEF = 40_000, 36_000
SUBAGENT = "planner"
"""The subagent whose system prompt says what a hypothesis is and how to answer."""
_TASK = """\
# Your task

Propose {count} for round {round}. A worker who tries one may change {edit}.

## Config classes

{classes}

## Bottlenecks of the present best, the heaviest first

{bottlenecks}

## The present best: `{path}`

{source}

{brief}
"""


class Suggestions(msgspec.Struct, frozen=True, kw_only=True):
    """The usable ideas of a model's answer, and a note for people."""

    ideas: tuple[PlannedIdea, ...] = ()
    note: str


def with_suggestions(context: EngineContext, inputs: PlanInputs, past: CampaignHistory,
                     recorded: RoundPlan | None) -> PlanInputs:
    """Return the inputs with a model's ideas, if one is configured and agents can follow them.

    A round with a `recorded` plan gets the ideas in it. Raises CampaignStopped.
    """
    setup, view = context.setup, inputs.survey
    spec = model_process.model_of(setup.manifest.pool, "planner")
    if recorded is not None:
        by_id = {tunable.bottleneck.id: tunable for tunable in view.bottlenecks}
        return msgspec.structs.replace(inputs, model_note=recorded.model, suggested=tuple(
            _idea(idea.text, by_id.get(idea.bottleneck)) for idea in recorded.suggested))
    if spec is None or not planned_share(inputs) or not authors(inputs.pool):
        return inputs
    known = [slot.hypothesis.removeprefix(f"{slot.option}: ") for round in past.attempts
             for slot in context.reader.slots(setup.id, round.n)]
    answer = model_request.ask(context, spec, SUBAGENT, view.routing.source,
                               _prompt(context, inputs), round=inputs.round,
                               purpose="proposes hypotheses")
    suggestions = read(answer, view.bottlenecks, planned_share(inputs), known)
    return msgspec.structs.replace(inputs, suggested=suggestions.ideas, model_note=suggestions.note)


def _prompt(context: EngineContext, inputs: PlanInputs) -> str:
    setup, target, view = context.setup, context.setup.target, inputs.survey
    listed = "\n".join(
        f"- {each.id}: {each.limiter} {each.config_class}: {each.detail}; {each.advice}"
        for each in (tunable.bottleneck for tunable in view.bottlenecks))
    source = read_text(setup.tree(setup.repo.tip) / target.source) if target.source else ""
    return _TASK.format(
        count="1 hypothesis" if planned_share(inputs) == 1 else
        f"{planned_share(inputs)} hypotheses", round=inputs.round, edit=", ".join(setup.edit),
        classes=slot_facts.config_classes(target) or "as the bottlenecks name them",
        bottlenecks=plain(listed, MAX_BRIEF) or "- none is known", path=target.source,
        source=fenced(source, MAX_SOURCE), brief=plain("\n\n".join(filter(None, (
            inputs.brief, kernel_routing.knowledge(setup, view.routing, source)))), MAX_BRIEF))


def read(answer: RequestAnswer, bottlenecks: Sequence[TunableBottleneck], count: int,
         known: Sequence[str]) -> Suggestions:
    """Return at most `count` hypotheses of an answer that differ from the `known` ones."""
    if answer.fault:
        return Suggestions(note=f"planned without the model: {answer.fault}")
    stated = _stated(answer.text, bottlenecks)
    if stated is None:
        return Suggestions(note="planned without the model: its answer has no usable hypothesis")
    if not stated:
        return Suggestions(note="planned without the model: it proposes nothing new")
    usable = idea_source.distinct(stated, known)[:count]
    repeats = len(stated[:count]) - len(usable)
    dropped = f"; {counted(repeats, 'repeat')} left out" if repeats > 0 else ""
    return Suggestions(ideas=tuple(usable), note=(
        f"the model planned {counted(len(usable), 'idea')} of {count}{dropped}"))


def _stated(answer: str, bottlenecks: Sequence[TunableBottleneck]) -> list[PlannedIdea] | None:
    """Return the usable hypotheses of an answer, in order; None if it is unreadable."""
    by_id = {tunable.bottleneck.id: tunable for tunable in bottlenecks}
    entries, is_empty = model_request.entries(answer, "hypotheses")
    ideas = []
    for entry in entries:
        text = entry.get("hypothesis")
        if not isinstance(text, str):
            continue
        sentence = re.split(r"(?<=[.!?])\s", one_line(text, 4 * LONGEST))[0]
        if SHORTEST <= len(sentence) <= LONGEST and len(re.findall(r"[a-zA-Z]{2,}", sentence)) \
                >= WORDS:
            named = re.match(r"[\w.]+", str(entry.get("bottleneck")))
            ideas.append(_idea(sentence.rstrip("."), by_id.get(named[0]) if named else None))
    return ideas if ideas or (is_empty and not entries) else None


def _idea(text: str, tunable: TunableBottleneck | None) -> PlannedIdea:
    return PlannedIdea(key=f"model-{zlib.crc32(text.encode(errors='replace')):08x}", text=text,
                       tunable=tunable)
