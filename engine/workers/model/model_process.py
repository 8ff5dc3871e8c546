"""Runs the program that asks a language model: guarded, with the provider's key over a socket.

A model works step by step in a shell, or is asked once (`ask`) and answers with a text.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from engine.manifest.pool_schema import ModelSpec, PoolSpec, RequestSpec
from engine.workers import cli
from engine.workers.model.provider_forwarder import ProviderForwarder
from engine.workers.transcript import Role, TranscriptEntry, TranscriptWriter
from harness.errors import InputError, Refused
from harness.formats.text import plain
from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import Turnstile
from harness.isolation.guard import Guarded
from harness.isolation.process_outcome import Limits, ProcessOutcome
from harness.isolation.zygote_client import WarmStart, ZygoteKind

CHILD = Path(__file__).with_name("agent_child.py")
RETRIES, RETRY_WAIT_S = 3, 2.0
"""How often a failed request is repeated, and the first wait in seconds; each further
wait is twice as long as the one before."""
MEMORY_BYTES, OUTPUT_BYTES = 4 << 30, 64 << 20
CLIENT = ("litellm", "minisweagent.agents.default", "minisweagent.models.utils.actions_toolcall",
          "litellm.responses.mcp.chat_completions_handler", "openai.resources.chat",
          "litellm.proxy.openai_files_endpoints.common_utils")
"""Modules that the child imports, with those that LiteLLM imports late: 10 s of CPU time in all.
litellm.litellm_core_utils.default_encoding is left out: it sets an environment variable in the
process that imports it."""
CLIENT_ENV = {"MSWEA_GLOBAL_CONFIG_DIR": str(CHILD.parent), "MSWEA_SILENT_STARTUP": "1",
              "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Keeps the client's import silent, off the network, and from creating a folder for settings."""


class ChildMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the child: a `step` or a command to `run` (both wait for an answer), what was
    said (`say`), why it waits (`wait`, "" when it goes on), or the `end`.
    """

    kind: str
    step: int = 0
    text: str = ""
    command: str = ""
    cost_usd: float | None = None
    """What the model's answer cost, None if its price is unknown."""
    tokens_read: int = 0
    tokens_written: int = 0
    ok: bool = False
    may_pass: bool = False
    """Whether the fault that ended the child passes by itself."""


def provider_key(spec: ModelSpec) -> str:
    """Return the key of a model's provider, "" if it needs none. Raises Refused."""
    if spec.missing_key:
        raise Refused(spec.missing_key,
                      fix="set it where kopt starts, or change the model's key_env")
    return os.environ[spec.key_env] if spec.key_env else ""


def script_of(spec: ModelSpec, project: Path | None) -> Path | None:
    """Return the file that answers in place of a model, None for a model. Raises InputError."""
    if project is None or not spec.script:
        return None
    script = (project / spec.script).resolve()
    if not script.is_relative_to(project.resolve()) or not script.is_file():
        raise InputError(f"pool.agent.model: there is no file {script.name} in the project",
                         where=str(project), fix="write scripted/FILE, relative to the project")
    return script


@functools.cache
def _warm_client() -> WarmStart:
    """Return the warm start whose forks have imported the client of a model."""
    env = guard.clean_env(CLIENT_ENV, home=Path("/nonexistent"))
    return WarmStart(ZygoteKind(python=sys.executable, language="", modules=CLIENT,
                                env=tuple(env.items())), yields=device_lock.turnstile())


class ModelProcess:
    """The child and the socket by which it gets its job and the answers to its messages.

    `private` is its home, the only folder that it may write. With a `script` it asks no provider.
    """

    def __init__(self, spec: ModelSpec, key: str, private: Path,
                 on_message: Callable[[ChildMessage], None], script: Path | None = None) -> None:
        self._spec, self._key, self._private = spec, key, private
        self._script = script
        self._on_message = on_message
        self._ours, self._childs = socket.socketpair()
        self._guarded: Guarded | None = None

    def send(self, answer: Mapping[str, object]) -> None:
        """Answer a message of the child, which may have ended."""
        with contextlib.suppress(OSError):
            self._ours.sendall(msgspec.json.encode(answer) + b"\n")

    def apply_wall_limit(self) -> None:
        """Apply the child's time limit as it is now; `run` does so between two messages."""
        if self._guarded is not None:
            self._guarded.apply_wall_limit()

    def run(self, system: str, prompt: str, *, wall_s: float, answer_s: float, tools: bool,
            name: str, yields: Turnstile | None, cancel: threading.Event,
            on_wait: Callable[[str], None] | None = None,
            wall_now: Callable[[], float] | None = None) -> tuple[ProcessOutcome, Limits]:
        """Run the child to its end, within `wall_s`; `answer_s` is the longest silence of a model.

        With `tools` the model works in a shell, step by step; without, it is asked once.
        `wall_now` returns the time limit as it is now, if it may change.
        """
        self._private.mkdir(parents=True, exist_ok=True)
        limits = Limits(wall_s=wall_s, output_bytes=OUTPUT_BYTES, memory_bytes=MEMORY_BYTES)
        job = {"key": self._key, "model": self._spec.model, "api_base": self._spec.api_base,
               "system": system, "prompt": prompt, "tools": tools, "answer_s": answer_s,
               "retries": RETRIES, "retry_wait_s": RETRY_WAIT_S,
               "script": str(self._script or "")}
        with self._ours, self._childs, ProviderForwarder(self._spec.api_base) as provider:
            threading.Thread(target=self.send, args=(job,), daemon=True).start()
            descriptors = [self._childs.fileno(), provider.link]
            with Guarded(
                    [sys.executable, "-I", str(CHILD), *map(str, descriptors)],
                    cwd=self._private, env=guard.clean_env(CLIENT_ENV, home=self._private),
                    limits=limits, pass_fds=descriptors, name=name,
                    confine=Confine(writable=(str(self._private),), cards=False),
                    yields=yields, on_line=self._take, on_wait=on_wait, wall_s=wall_now,
                    zygote=_warm_client().zygote(), program=str(CHILD)) as guarded:
                self._guarded = guarded
                return guarded.wait(cancel=cancel), guarded.limits

    def _take(self, line: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            self._on_message(msgspec.json.decode(line, type=ChildMessage))


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
        key = provider_key(spec)
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
