"""The program that asks a language model, for an agent's slot or once. It runs no command itself.

The job, with the provider's key, arrives on a socket, never in the environment. Requests to the
engine are lines on standard output; its answers arrive on the socket. The engine connects this
process to the provider. A script that answers in place of a model runs here, and nothing listens.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))

from engine.workers.model import provider_tunnel

PR_SET_DUMPABLE = 4
LONGEST_WAIT_S = 30.0
FORMAT_ERRORS = 5
"""So many answers in a row without a usable command end the attempt."""
LONGEST_ANSWER = 200_000
"""Characters of an answer to a single request."""


class EngineLink:
    """The engine at the other end."""

    def __init__(self, descriptor: int) -> None:
        self._lines = socket.socket(fileno=descriptor).makefile("r", encoding="utf-8")
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # libraries print to standard output
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
    """The engine has said that a limit is reached."""


class EngineShell:
    """The environment of mini-swe-agent: the engine runs its commands."""

    def __init__(self, engine: EngineLink) -> None:
        self.config: Any = None
        self._engine = engine

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        from minisweagent.exceptions import Submitted

        output = self._engine.ask("run", command=action["command"])
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" \
                and output["returncode"] == 0:
            rest = "".join(lines[1:])
            raise Submitted({"role": "exit", "content": rest,
                             "extra": {"exit_status": "Submitted", "submission": rest}})
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return {}  # mini-swe-agent's own shell offers the whole environment to prompts

    def serialize(self) -> dict[str, Any]:
        return {}


class StreamedModel:
    """The model of mini-swe-agent: LiteLLM with streamed answers, whose silence has a limit."""

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
        """Return the model's answer; a failed request is repeated."""
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
                                               f"{_one_line(error, self._job)}")
                time.sleep(wait_s)
                self._engine.tell("wait")
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> Any:
        import litellm

        sent = [{key: value for key, value in message.items() if key != "extra"}
                for message in messages]
        chunks = litellm.completion(
            model=self._job["model"], messages=sent, stream=True, **options,
            stream_options={"include_usage": True}, timeout=self._job["answer_s"], num_retries=0,
            max_retries=0, api_key=self._job["key"] or "none",
            api_base=self._job["api_base"] or None)
        response: Any = litellm.stream_chunk_builder(list(chunks), messages=sent)
        answer = response.choices[0].message if response and response.choices else None
        if answer is None or not (answer.tool_calls or (answer.content or "").strip()):
            raise ValueError("the provider's answer is empty or no answer at all")
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
        """Return how many tokens an answer's request and its text had, by the provider's count."""
        usage = getattr(response, "usage", None)
        return {"tokens_read": getattr(usage, "prompt_tokens", None) or 0,
                "tokens_written": getattr(usage, "completion_tokens", None) or 0}

    def cost(self, response: Any) -> float | None:
        """Return an answer's price by LiteLLM's table, None if it does not know the model."""
        import litellm

        if self._job["script"]:
            return 0.0
        try:
            cost = float(litellm.completion_cost(response, model=self._job["model"]))
        except Exception:  # whatever the table lacks
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
        found: list[dict[str, Any]] = format_toolcall_observation_messages(
            actions=message["extra"]["actions"], outputs=outputs, observation_template=template)
        return found

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


def _root(error: BaseException) -> BaseException:
    """Return the first error of a chain, such as why a connection was refused."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _answered_by(job: dict[str, Any]) -> int:
    """Start what answers in place of a model; return the descriptor that leads to it."""
    from engine.workers.model import scripted_provider

    job.update(model="openai/scripted", api_base="http://script/v1")
    return scripted_provider.start(Path(job["script"]))


def _one_line(error: BaseException, job: dict[str, Any]) -> str:
    text = " ".join(str(error).split()) or "no reason is given"
    name = type(error).__name__
    if name == "Timeout":
        text = f"no answer within {job['answer_s']:g} s"
    elif (cause := str(_root(error))) not in text and isinstance(_root(error), OSError):
        text = f"{text} {cause}"
    if job["key"]:
        text = text.replace(job["key"], "[key]")
    return f"the provider failed: {name}: {text}"[:400]


def _ask_once(engine: EngineLink, model: StreamedModel, job: dict[str, Any]) -> None:
    """Send the prompt once, without tools; the end carries the answer."""
    response = model.request([{"role": "system", "content": job["system"]},
                              {"role": "user", "content": job["prompt"]}])
    text = response.choices[0].message.content or ""
    engine.tell("end", ok=True, text=text[:LONGEST_ANSWER], cost_usd=model.cost(response),
                **model.tokens(response))


def _work(engine: EngineLink, model: StreamedModel, job: dict[str, Any]) -> None:
    """Let the model work with a shell until it submits."""
    from minisweagent.agents.default import DefaultAgent

    agent = DefaultAgent(model, EngineShell(engine), system_template="{{ system }}",
                         instance_template="{{ task }}", step_limit=0, cost_limit=0.0,
                         max_consecutive_format_errors=FORMAT_ERRORS)
    ended = agent.run(job["prompt"], system=job["system"] or "You make code faster.")
    done = ended.get("exit_status") == "Submitted"
    engine.tell("end", ok=done, text="submitted" if done else
                f"{FORMAT_ERRORS} answers in a row without a usable command")


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process may read this memory
    engine = EngineLink(int(sys.argv[1]))
    job = engine.read()
    try:
        provider_tunnel.install(_answered_by(job) if job["script"] else int(sys.argv[2]))
        import litellm

        litellm.suppress_debug_info, litellm.telemetry = True, False
        (_work if job["tools"] else _ask_once)(engine, StreamedModel(engine, job), job)
    except Stopped as stop:
        engine.tell("end", ok=True, text=str(stop))
    except Exception as error:  # whatever the provider or its client raises
        engine.tell("end", text=_one_line(error, job))
    return 0


if __name__ == "__main__":
    sys.exit(main())
