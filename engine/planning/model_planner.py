"""Asks a language model for hypotheses; what it answers is checked, and never needed.

An answer that is late, nonsense or repeats ideas leaves its slots to the ideas of `idea_source`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.context import EngineContext
from engine.history.history import CampaignHistory
from engine.journal.plan_event import RoundPlan
from engine.judge import stop_rules
from engine.judge.stop_rules import BudgetUsed
from engine.manifest.pool_schema import PlannerSpec
from engine.markdown import fenced
from engine.planning import idea_source, kernel_routing
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.idea_source import PlannedIdea
from engine.planning.plan_inputs import PlanInputs, planned_share
from engine.planning.pool_size import authors
from engine.planning.survey import Survey
from engine.task import ModelAnswer
from engine.workers import slot_facts
from engine.workers.model import single_request
from engine.workers.model.single_request import RequestAnswer
from harness.errors import InputError
from harness.formats.quantities import counted
from harness.formats.text import plain, read_text
from harness.isolation import device_lock

SHORTEST, LONGEST, WORDS = 20, 300, 4
"""Characters and words of a hypothesis that can be one."""
MAX_SOURCE, MAX_BRIEF = 40_000, 36_000
STARTS = 200
"""So many places of an answer are tried where JSON may begin."""
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
    """The usable ideas of a model's answer, and what people are told about it."""

    ideas: tuple[PlannedIdea, ...] = ()
    note: str


def with_suggestions(context: EngineContext, inputs: PlanInputs, view: Survey,
                     past: CampaignHistory, recorded: RoundPlan | None) -> PlanInputs:
    """Return the inputs with a model's ideas, if one is configured and agents can follow them.

    A round that was `recorded` gets the ideas that it had. Raises CampaignStopped.
    """
    setup, spec = context.setup, single_request.planner_of(context.setup.manifest.pool)
    if recorded is not None:
        by_id = {own.bottleneck.id: own for own in view.bottlenecks}
        return msgspec.structs.replace(inputs, model_note=recorded.model, suggested=tuple(
            _idea(idea.text, by_id.get(idea.bottleneck)) for idea in recorded.suggested))
    if spec is None or not planned_share(inputs) or not authors(inputs.pool):
        return inputs
    known = [slot.hypothesis.removeprefix(f"{slot.option}: ") for round in past.attempts
             for slot in context.reader.slots(setup.id, round.n)]
    if over := stop_rules.models_over_budget(
            setup.manifest.budget, BudgetUsed(cost_usd=context.used_usd)):
        return msgspec.structs.replace(inputs, model_note=f"planned without the model: {over}")
    attempt = 1 + setup.folder.last_attempt(inputs.round, SUBAGENT)
    answer = _ask(context, spec, inputs, view,
                  setup.folder.transcript(inputs.round, SUBAGENT, attempt))
    if answer.text or answer.cost_usd is None:
        context.book(ModelAnswer(
            round=inputs.round, slot=SUBAGENT, attempt=attempt, model=spec.model,
            cost_usd=answer.cost_usd, tokens_read=answer.tokens_read,
            tokens_written=answer.tokens_written))
    found = read(answer, view.bottlenecks, planned_share(inputs), known)
    return msgspec.structs.replace(inputs, suggested=found.ideas, model_note=found.note)


def _ask(context: EngineContext, spec: PlannerSpec, inputs: PlanInputs, view: Survey,
         transcript: Path) -> RequestAnswer:
    """Ask in a thread of its own, so that people's requests are answered meanwhile."""
    setup = context.setup
    try:
        system = kernel_routing.system_prompt(setup, view.routing, SUBAGENT)
    except InputError as error:
        return RequestAnswer(fault=str(error))
    prompt = _prompt(context, inputs, view)
    scratch = setup.folder.fresh_scratch(SUBAGENT)
    yields = device_lock.turnstile() if setup.device.kind == "cpu" else None
    context.tick(SUBAGENT, "waiting", f"{spec.model} proposes hypotheses")
    return context.run_in_thread(lambda: single_request.ask(
        spec, system, prompt, scratch, transcript, yields=yields, cancel=context.stop))


def _prompt(context: EngineContext, inputs: PlanInputs, view: Survey) -> str:
    setup, target = context.setup, context.setup.target
    listed = "\n".join(
        f"- {own.bottleneck.id}: {own.bottleneck.limiter} {own.bottleneck.config_class}: "
        f"{own.bottleneck.detail}; {own.bottleneck.advice}" for own in view.bottlenecks)
    source = read_text(setup.tree(setup.repo.tip) / target.source) if target.source else ""
    return _TASK.format(
        count="1 hypothesis" if planned_share(inputs) == 1 else
        f"{planned_share(inputs)} hypotheses", round=inputs.round, edit=", ".join(setup.edit),
        classes=slot_facts.config_classes(target) or "as the bottlenecks name them",
        bottlenecks=plain(listed, MAX_BRIEF) or "- none is known", path=target.source,
        source=fenced(source, MAX_SOURCE), brief=plain("\n\n".join(filter(None, (
            inputs.brief, kernel_routing.knowledge(setup, view.routing)))), MAX_BRIEF))


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
    """Return the hypotheses of an answer that can be ones, in their order; None for nonsense."""
    by_id = {own.bottleneck.id: own for own in bottlenecks}
    entries, is_empty = _entries(answer)
    ideas = []
    for entry in entries:
        text = entry.get("hypothesis")
        if not isinstance(text, str):
            continue
        sentence = re.split(r"(?<=[.!?])\s", " ".join(plain(text, 4 * LONGEST).split()))[0]
        if SHORTEST <= len(sentence) <= LONGEST and len(re.findall(r"[a-zA-Z]{2,}", sentence)) \
                >= WORDS:
            named = re.match(r"[\w.]+", str(entry.get("bottleneck")))
            ideas.append(_idea(sentence.rstrip("."), by_id.get(named[0]) if named else None))
    return ideas if ideas or (is_empty and not entries) else None


def _entries(answer: str) -> tuple[list[dict[str, object]], bool]:
    """Return the objects of an answer's JSON, between any other words, and whether a list of
    hypotheses in it is empty. The answer may be cut off.
    """
    decoder, entries, is_empty, at = json.JSONDecoder(), list[dict[str, object]](), False, 0
    for _ in range(STARTS):
        if (start := re.compile(r"[\[{]").search(answer, at)) is None:
            break
        try:
            value, at = decoder.raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            at = start.end()
            continue
        if isinstance(value, dict):
            is_empty = is_empty or value.get("hypotheses") == []
            value = value.get("hypotheses", [value])
        entries += [entry for entry in value if isinstance(entry, dict)] \
            if isinstance(value, list) else []
    return entries, is_empty or answer.strip() == "[]"


def _idea(text: str, tunable: TunableBottleneck | None) -> PlannedIdea:
    return PlannedIdea(key=f"model-{zlib.crc32(text.encode(errors='replace')):08x}", text=text,
                       tunable=tunable)
