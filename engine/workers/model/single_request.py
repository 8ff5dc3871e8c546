"""One request to a language model, without tools, whose answer is a text."""

from __future__ import annotations

import importlib.util
import threading
import time
from pathlib import Path
from typing import Literal

import msgspec

from engine.manifest.pool_schema import PoolSpec, RequestSpec
from engine.workers import cli
from engine.workers.model import model_process
from engine.workers.model.model_process import ChildMessage, ModelProcess
from engine.workers.transcript import Role, TranscriptEntry, TranscriptWriter
from harness.errors import InputError, Refused
from harness.formats.text import plain
from harness.isolation.device_lock import Turnstile


class RequestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer, or why there is none."""

    text: str = ""
    fault: str = ""
    cost_usd: float | None = 0.0
    """What it cost, None if the price is not known."""
    tokens_read: int = 0
    tokens_written: int = 0


def model_of(pool: PoolSpec, part: Literal["planner", "analyst", "reviewer"]
             ) -> RequestSpec | None:
    """Return the model that a part of `pool` asks, None if there is none."""
    spec = getattr(pool, part)
    if isinstance(spec, RequestSpec):
        return spec
    if spec == "planner":
        return model_of(pool, "planner")
    if spec == "none" or pool.agent is None or pool.agent.script:
        return None  # a script answers slots only
    return RequestSpec(model=pool.agent.model, api_base=pool.agent.api_base,
                       key_env=pool.agent.key_env)


def ask(spec: RequestSpec, system: str, prompt: str, scratch: Path, transcript: Path, *,
        name: str, yields: Turnstile | None, cancel: threading.Event) -> RequestAnswer:
    """Ask a model once and record the exchange; faults are returned, not raised."""
    if not importlib.util.find_spec("litellm"):
        return RequestAnswer(fault="it needs litellm: pip install 'kopt[agent]'")
    messages: list[ChildMessage] = []
    try:
        key = model_process.provider_key(spec)
        outcome, limits = ModelProcess(spec, key, scratch / "private", messages.append).run(
            system, prompt, wall_s=spec.timeout_s, answer_s=spec.timeout_s, tools=False,
            name=name, yields=yields, cancel=cancel)
    except (Refused, InputError) as error:
        return RequestAnswer(fault=str(error))
    secret, end = {"provider_key": key}, [message for message in messages if message.kind == "end"]
    if outcome.ended == "timeout":
        return RequestAnswer(fault=f"no answer within {spec.timeout_s:g} s", cost_usd=None)
    if not end:
        return RequestAnswer(cost_usd=None, fault="its program " + cli.without_secrets(
            f"{outcome.describe(limits)} {outcome.reason_line}", secret))
    text = cli.without_secrets(end[-1].text, secret)
    writer = TranscriptWriter(transcript)
    parts: tuple[tuple[Role, str], ...] = (
        ("system", system), ("user", prompt), ("assistant", text))
    for role, part in parts:
        writer.add(TranscriptEntry(step=1, at=time.time(), role=role, text=part,
                                   cost_usd=end[-1].cost_usd))
    if not end[-1].ok:
        return RequestAnswer(fault=plain(" ".join(text.split()), 300))
    return RequestAnswer(text=text, cost_usd=end[-1].cost_usd, tokens_read=end[-1].tokens_read,
                         tokens_written=end[-1].tokens_written)
