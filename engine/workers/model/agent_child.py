"""The program that asks a language model, for an agent's slot or once. It runs no command itself.

The job, with the provider's key, arrives on a socket, never in the environment. Requests to the
engine are lines on standard output; its answers arrive on the socket. The engine connects this
process to the provider; one that has a script in a model's place is connected to nothing.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))

from engine.workers.model import provider_tunnel
from engine.workers.model.asked_model import (
    EngineLink,
    ScriptedModel,
    ScriptFailed,
    Stopped,
    StreamedModel,
    may_pass,
    provider_fault,
)

PR_SET_DUMPABLE = 4
FORMAT_ERRORS = 5
"""Answers in a row without a usable command that end the attempt."""
LONGEST_ANSWER = 200_000
"""Characters of an answer to a single request."""


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


def _ask_once(engine: EngineLink, model: StreamedModel, job: dict[str, Any]) -> None:
    """Send the prompt once, without tools; the message `end` carries the answer."""
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
    is_done = ended.get("exit_status") == "Submitted"
    engine.tell("end", ok=is_done, text="submitted" if is_done else
                f"{FORMAT_ERRORS} answers in a row without a usable command")


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process may read this memory
    engine = EngineLink(int(sys.argv[1]))
    job = engine.read()
    try:
        if not job["script"]:
            provider_tunnel.install(int(sys.argv[2]))
        import litellm

        litellm.suppress_debug_info, litellm.telemetry = True, False
        model = (ScriptedModel if job["script"] else StreamedModel)(engine, job)
        (_work if job["tools"] else _ask_once)(engine, model, job)
    except Stopped as stop:
        engine.tell("end", ok=True, text=str(stop))
    except ScriptFailed as fault:
        engine.tell("end", text=str(fault))
    except Exception as error:  # whatever the provider or its client raises
        engine.tell("end", text=provider_fault(error, job), may_pass=may_pass(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
