"""The model that an agent's slot or a single request asks: a provider's, or a script in its place.

Runs in the program `agent_child`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

LONGEST_WAIT_S = 30.0


class EngineLink:
    """The connection to the engine."""

    def __init__(self, descriptor: int) -> None:
        self._lines = socket.socket(fileno=descriptor).makefile("r", encoding="utf-8")
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # what libraries print must not mix with messages to the engine
        self.step = 0

    def read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            sys.exit(1)  # the engine is gone
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tell(self, kind: str, **fields: object) -> None:
        self._out.write(json.dumps({"kind": kind, "step": self.step, **fields}) + "\n")
        self._out.flush()

    def ask(self, kind: str, **fields: object) -> dict[str, Any]:
        self.tell(kind, **fields)
        return self.read()


class Stopped(Exception):
    """The engine reports that a limit is reached."""


class StreamedModel:
    """The model of mini-swe-agent: LiteLLM with streamed answers, which must not pause too long."""

    def __init__(self, engine: EngineLink, job: dict[str, Any]) -> None:
        self.config: Any = None
        self._engine, self._job = engine, job

    def query(self, messages: list[dict[str, Any]], **kwargs: Any) -> dict[str, Any]:
        from minisweagent.models.utils.actions_toolcall import BASH_TOOL

        self._engine.step += 1
        if stop := self._engine.ask("step")["stop"]:
            raise Stopped(stop)
        return self._checked(self.request(messages, tools=[BASH_TOOL]))

    def request(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        """Return the model's answer; repeat a request whose fault may pass, except a timeout."""
        import litellm

        for attempt in range(1 + self._job["retries"]):
            try:
                return self._answer(messages, options)
            except (litellm.exceptions.AuthenticationError, litellm.exceptions.NotFoundError,
                    litellm.exceptions.PermissionDeniedError,
                    litellm.exceptions.BadRequestError):
                raise
            except Exception as error:
                if attempt == self._job["retries"] or isinstance(
                        error, litellm.exceptions.Timeout):
                    raise
                wait_s = self._wait_s(error, attempt)
                self._engine.tell("wait", text=f"asked again in {wait_s:.0f} s: "
                                               f"{provider_fault(error, self._job)}")
                time.sleep(wait_s)
                self._engine.tell("wait")
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> Any:
        import litellm

        sent = _without_extra(messages)
        chunks = litellm.completion(
            model=self._job["model"], messages=sent, stream=True, **options,
            stream_options={"include_usage": True}, timeout=self._job["answer_s"], num_retries=0,
            max_retries=0, api_key=self._job["key"] or "none",
            api_base=self._job["api_base"] or None)
        response: Any = litellm.stream_chunk_builder(list(chunks), messages=sent)
        answer = response.choices[0].message if response and response.choices else None
        if answer is None or not (answer.tool_calls or (answer.content or "").strip()):
            raise ValueError("the provider's answer has neither text nor a tool call")
        return response

    def _wait_s(self, error: Exception, attempt: int) -> float:
        headers = getattr(error, "litellm_response_headers", None) or {}
        wait_s: float = self._job["retry_wait_s"] * 2 ** attempt
        with contextlib.suppress(ValueError):
            wait_s = float(headers.get("retry-after", wait_s))
        return min(max(0.0, wait_s), LONGEST_WAIT_S)

    def _checked(self, response: Any) -> dict[str, Any]:
        """Return an answer as a message. Raises FormatError before an unusable command runs."""
        from minisweagent.exceptions import FormatError
        from minisweagent.models.utils.actions_toolcall import parse_toolcall_actions

        answer = response.choices[0].message
        cost = self.cost(response)
        calls = answer.tool_calls or []
        extra = {"cost": cost or 0.0}
        commands = [str(call.function.arguments) for call in calls]
        try:
            actions = parse_toolcall_actions(calls, format_error_template="{{ error }}")
            for action in actions:
                if not isinstance(action["command"], str) or not action["command"].strip() \
                        or "\0" in action["command"]:
                    raise FormatError({"role": "user", "content": "The command is empty or no "
                                       "text. Call `bash` with one command.", "extra": {}})
            commands = [action["command"] for action in actions]
        except FormatError as error:
            error.messages[0].setdefault("extra", {}).update(extra)
            self._tell(response, commands, cost)
            self._engine.tell("say", text=error.messages[0]["content"])
            raise
        self._tell(response, commands, cost)
        message = {key: value for key, value in answer.model_dump().items() if value is not None}
        return {**message, "extra": {**extra, "actions": actions}}

    def _tell(self, response: Any, commands: list[str], cost: float | None) -> None:
        self._engine.tell("say", ok=True, text=response.choices[0].message.content or "",
                          command="\n".join(commands), cost_usd=cost, **self.tokens(response))

    def tokens(self, response: Any) -> dict[str, int]:
        """Return how many tokens a request and its answer had, by the provider's count."""
        usage = getattr(response, "usage", None)
        return {"tokens_read": getattr(usage, "prompt_tokens", None) or 0,
                "tokens_written": getattr(usage, "completion_tokens", None) or 0}

    def cost(self, response: Any) -> float | None:
        """Return an answer's price by LiteLLM's table, None if it has no price."""
        import litellm

        try:
            cost = float(litellm.completion_cost(response, model=self._job["model"]))
        except Exception:  # the table does not know the model, for example
            return None
        return cost if cost > 0 else None

    def format_message(self, **kwargs: Any) -> dict[str, Any]:
        if kwargs.get("role") in ("system", "user"):
            self._engine.tell("say", text=kwargs["content"])
        return kwargs

    def format_observation_messages(self, message: dict[str, Any], outputs: list[dict[str, Any]],
                                    template_vars: Any = None) -> list[dict[str, Any]]:
        from minisweagent.models.utils.actions_toolcall import format_toolcall_observation_messages

        template = "{% if output.exception_info %}{{ output.exception_info }}\n{% endif %}" \
            "<returncode>{{ output.returncode }}</returncode>\n" \
            "<output>\n{{ output.output }}</output>"
        messages: list[dict[str, Any]] = format_toolcall_observation_messages(
            actions=message["extra"]["actions"], outputs=outputs, observation_template=template)
        return messages

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


class ScriptFailed(Exception):
    """The script in a model's place cannot be loaded, or raised."""


class ScriptedModel(StreamedModel):
    """A script in a model's place: its `answer` returns a text, and a command or None."""

    def __init__(self, engine: EngineLink, job: dict[str, Any]) -> None:
        super().__init__(engine, job)
        with _script_faults():
            loader = SourceFileLoader("kopt_agent_script", job["script"])
            spec = spec_from_loader(loader.name, loader)
            assert spec is not None
            script = module_from_spec(spec)
            loader.exec_module(script)
            self._script = script.answer

    def request(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        import litellm

        with _script_faults():
            text, command = self._script(_without_extra(messages))
            calls = [] if command is None else [{"id": "call_1", "type": "function", "function": {
                "name": "bash", "arguments": json.dumps({"command": command})}}]
            return litellm.ModelResponse(choices=[{
                "index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": text, "tool_calls": calls}}])

    def cost(self, response: Any) -> float | None:
        return 0.0


@contextlib.contextmanager
def _script_faults() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever the script raises
        text = " ".join(f"the script failed: {type(error).__name__}: {error}".split())
        raise ScriptFailed(text[:400]) from error


def _without_extra(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as a provider gets them, without mini-swe-agent's notes."""
    return [{key: value for key, value in message.items() if key != "extra"}
            for message in messages]


def _root(error: BaseException) -> BaseException:
    """Return the first error of a chain, such as why a connection was refused."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def may_pass(error: BaseException) -> bool:
    """Return whether waiting may mend a fault: the provider is down, busy or silent."""
    from litellm import exceptions

    return isinstance(error, (
        exceptions.APIConnectionError, exceptions.InternalServerError, exceptions.RateLimitError,
        exceptions.ServiceUnavailableError, exceptions.BadGatewayError, exceptions.Timeout)) \
        and "insufficient_quota" not in str(error)


def provider_fault(error: BaseException, job: dict[str, Any]) -> str:
    """Return in one line why a provider's answer is missing, without the key."""
    text = " ".join(str(error).split()) or "no reason is given"
    name = type(error).__name__
    if name == "Timeout":
        text = f"no answer within {job['answer_s']:g} s"
    elif (cause := str(_root(error))) not in text and isinstance(_root(error), OSError):
        text = f"{text} {cause}"
    if job["key"]:
        text = text.replace(job["key"], "[key]")
    return f"the provider failed: {name}: {text}"[:400]
