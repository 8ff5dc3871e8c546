"""Sends a subagent's model one request, within the campaign's budget, and books its cost."""

from __future__ import annotations

import json
import re

from engine.context import EngineContext
from engine.judge import stop_rules
from engine.judge.stop_rules import BudgetUsed
from engine.manifest.pool_schema import RequestSpec
from engine.planning import kernel_routing
from engine.routing.source_language import SourceLanguage
from engine.task import ModelAnswer
from engine.workers.model import model_process
from engine.workers.model.model_process import RequestAnswer
from harness.errors import InputError
from harness.isolation import device_lock

STARTS = 200
"""Most positions in an answer that are tried as the start of JSON."""


def ask(context: EngineContext, spec: RequestSpec, subagent: str, language: SourceLanguage,
        prompt: str, *, round: int, purpose: str) -> RequestAnswer:
    """Send the request in a separate thread, so that controls are handled meanwhile.

    `purpose` describes the request to people. Raises CampaignStopped.
    """
    setup = context.setup
    if over := stop_rules.models_over_budget(
            setup.manifest.budget, BudgetUsed(cost_usd=context.used_usd)):
        return RequestAnswer(fault=over)
    try:
        system = kernel_routing.system_prompt(setup, language, subagent)
    except InputError as error:
        return RequestAnswer(fault=str(error))
    attempt = 1 + setup.folder.last_attempt(round, subagent)
    transcript = setup.folder.transcript(round, subagent, attempt)
    scratch = setup.folder.fresh_scratch(subagent)
    yields = device_lock.turnstile() if setup.device.kind == "cpu" else None
    context.tick(subagent, "waiting", f"{spec.model} {purpose}")
    answer = context.run_in_thread(lambda: model_process.ask(
        spec, system, prompt, scratch, transcript, name=subagent, yields=yields,
        cancel=context.stop))
    if answer.text or answer.cost_usd is None:
        context.book(ModelAnswer(
            round=round, slot=subagent, attempt=attempt, model=spec.model,
            cost_usd=answer.cost_usd, tokens_read=answer.tokens_read,
            tokens_written=answer.tokens_written))
    return answer


def entries(answer: str, key: str) -> tuple[list[dict[str, object]], bool]:
    """Return the objects in each list `key` of the JSON in an answer; also whether one is empty.

    A list of objects or a single object counts too. The answer may be cut off.
    """
    decoder, objects, is_empty, at = json.JSONDecoder(), list[dict[str, object]](), False, 0
    for _ in range(STARTS):
        if (start := re.compile(r"[\[{]").search(answer, at)) is None:
            break
        try:
            value, at = decoder.raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            at = start.end()
            continue
        if isinstance(value, dict):
            is_empty = is_empty or value.get(key) == []
            value = value.get(key, [value])
        objects += [entry for entry in value if isinstance(entry, dict)] \
            if isinstance(value, list) else []
    return objects, is_empty or answer.strip() == "[]"
