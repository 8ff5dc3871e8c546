"""The `agent` backend: a language model with a shell in the slot's worktree.

A child program (`model/agent_child.py`) asks the model; it has the provider's key and reaches only
the provider, but runs no command. The engine runs the model's commands, each confined separately:
without network, without the key, and in a process namespace that shows neither the child nor kopt.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.journal import database
from engine.manifest.pool_schema import AgentSpec
from engine.subagents.subagent import Subagent
from engine.task import AgentProgress, ModelAnswer, Task
from engine.workers import cli
from engine.workers.cli_output import hypothesis_in
from engine.workers.model import model_process, provider_forwarder
from engine.workers.model.attempt_limits import AttemptLimits
from engine.workers.model.model_process import ChildMessage, ModelProcess
from engine.workers.protocol import LOG, Report, Tick, WorkerBench
from engine.workers.slot import screening_desk
from engine.workers.transcript import (
    TRANSCRIPT,
    Role,
    TranscriptEntry,
    TranscriptWriter,
    middle_cut,
)
from harness.errors import Refused
from harness.formats.quantities import dollars
from harness.formats.text import plain
from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits, ProcessOutcome

EXTRA = "pip install 'kopt[agent]'"
OUTPUT_CHARS = 12_000
"""Characters of a command's output that the model gets: its start and its end."""
INSTRUCTIONS = """
# How you work here

Answer every time with a call of the tool `bash`; each command starts a new shell in the folder of
the task, without a network. What you leave in the folder's files is your candidate. You have
{steps} answers and {minutes} minutes; a command may take {command_s} s. The line `Hypothesis: ` may
stand in the text of any answer; the last one counts. When you are done, run
`echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT` alone.
"""


def missing_extra() -> str:
    """Return a message that names the packages the backend lacks here, "" for none."""
    lacking = [name for name in ("minisweagent", "litellm") if not importlib.util.find_spec(name)]
    return f"the backend 'agent' needs {' and '.join(lacking)}: {EXTRA}" if lacking else ""


def instructions(limits: AttemptLimits, spec: AgentSpec) -> str:
    """Return the end of the prompt of a model that works in a shell."""
    return INSTRUCTIONS.format(steps=limits.steps, minutes=max(1, round(limits.wall_s / 60)),
                               command_s=f"{spec.command_s:g}")


class AgentWorker:
    """Lets a language model work in a slot until it submits or reaches a limit."""

    def __init__(self, spec: AgentSpec, project: Path | None = None) -> None:
        if lacking := missing_extra():
            raise Refused(lacking, fix=EXTRA)
        provider_forwarder.address_of(spec.api_base)
        self._spec, self._project = spec, project
        self._script = model_process.script_of(spec, project)

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        key = model_process.provider_key(self._spec)
        if key and (problem := guard.confinement_problem()):
            raise Refused(f"cannot hide the provider's key from commands here: {problem}",
                          fix="use a machine with user namespaces, or a model without a key")
        subagent, system, prompt = cli.prompts(task, bench, self._project)
        slot = AgentSlot(self._spec, task, subagent, bench, tick, cancel, key, self._script)
        return slot.run(system, prompt)


class AgentSlot:
    """One attempt: the child that asks the model, and the commands that the engine runs for it."""

    def __init__(self, spec: AgentSpec, task: Task, subagent: Subagent | None, bench: WorkerBench,
                 tick: Tick, cancel: threading.Event, key: str,
                 script: Path | None = None) -> None:
        if subagent and subagent.model and not script:
            spec = msgspec.structs.replace(spec, model=subagent.model)
        self._spec, self._bench, self._tick, self._cancel = spec, bench, tick, cancel
        self._task, self._key, self._hypothesis = task, key, ""
        self._model = f"{spec.model} (a script, no model)" if script else spec.model
        self._home = Path(bench.scratch) / "home"
        self._limits = AttemptLimits(spec, subagent, bench.timeout_s, bench.allowance)
        self._began = self._waited_s = 0.0
        self._transcript = TranscriptWriter(
            Path(bench.transcript or Path(bench.scratch) / TRANSCRIPT))
        self._yields = device_lock.turnstile() if bench.device.kind == "cpu" else None
        self._passed = {name: os.environ[name] for name in spec.env if name in os.environ}
        self._child = ModelProcess(spec, key, Path(bench.scratch) / "agent", self._take,
                                   script)
        self._steps, self._cost, self._limit, self._last = 0, 0.0, "", ""
        self._is_priced = True
        self._began_at, self._shown = time.time(), ("starting", self._model)
        self._end: ChildMessage | None = None

    def run(self, system: str, prompt: str) -> Report:
        """Run the attempt to its end and report it; `prompt` is its task."""
        prompt += instructions(self._limits, self._spec)
        self._home.mkdir(parents=True, exist_ok=True)
        self._show(*self._shown)
        outcome, limits = self._child.run(
            system, prompt, wall_s=self._limits.wall_s, answer_s=self._spec.answer_s, tools=True,
            name="agent", yields=self._yields, on_wait=self._wait, cancel=self._cancel,
            wall_now=lambda: self._limits.wall_s)
        log = self._without_secrets(outcome.stderr.decode(errors="replace"))
        (Path(self._bench.scratch) / LOG).write_text(plain(log[-cli.LOG_BYTES:], cli.LOG_BYTES))
        return self._report(outcome, limits)

    def _take(self, message: ChildMessage) -> None:
        self._began = self._began or time.monotonic()  # the child may have waited for its turn
        if message.kind == "say" and message.ok:  # an answer of the model
            self._is_priced = self._is_priced and message.cost_usd is not None
            self._cost += message.cost_usd or 0.0
            self._bench.book(ModelAnswer(
                round=self._task.round, slot=self._task.slot, attempt=self._task.attempt,
                model=self._spec.model, cost_usd=message.cost_usd,
                tokens_read=message.tokens_read, tokens_written=message.tokens_written))
        match message.kind:
            case "step":
                self._limit = self._limit or self._limits.reached(message.step, self._cost)
                if not self._limit:
                    self._steps = message.step
                self._child.send({"stop": self._limit})
                self._show("asking", self._model)
            case "wait":
                self._wait(plain(self._without_secrets(message.text)))
                if message.text:
                    self._note(TranscriptEntry(step=message.step, at=time.time(), role="note",
                                               text=message.text))
            case "run":
                self._child.send(self._run(message))
            case "end":
                self._end = message
            case "say":
                role: Role = "assistant" if message.ok else "user"
                self._note(TranscriptEntry(step=message.step, at=time.time(), role=role,
                                           text=message.text, command=message.command))

    def _show(self, stage: str, detail: str) -> None:
        """Show what the slot does now."""
        self._shown = stage, detail
        self._wait("")

    def _wait(self, reason: str) -> None:
        """Show what the slot waits for, or for "" that it works again."""
        stage, detail = ("waiting", reason) if reason else self._shown
        self._tick(stage, detail, None, AgentProgress(
            began_at=self._began_at, step=self._steps, step_limit=self._limits.steps,
            cost_usd=self.cost_usd, command=self._last))

    def _run(self, message: ChildMessage) -> dict[str, object]:
        """Run and confine a command of the model; return its result for the model."""
        self._last = plain(self._without_secrets(" ".join(message.command.split())), 120)
        self._show("running", self._last)
        start = time.monotonic()
        begun_s = start - self._began - self._waited_s

        def wall_s() -> float:
            self._child.apply_wall_limit()  # the child's loop is blocked by this command
            return min(self._spec.command_s, max(0.1, self._limits.wall_s - begun_s))

        limits = Limits(wall_s=wall_s(), output_bytes=4 << 20, memory_bytes=16 << 30)
        bench = self._bench
        outcome = guard.run(
            ["/bin/sh", "-c", message.command + "\n"], cwd=Path(bench.worktree), limits=limits,
            env=cli.environment(bench, cli.HIDDEN | self._passed, self._home),
            confine=Confine(writable=(bench.worktree, str(self._home)), network=False, cards=False,
                            hidden=(*bench.hidden, *database.lately_open_files(),
                                    str(Path(bench.scratch) / "agent")),
                            required=bool(self._key)),
            yields=self._yields, on_wait=self._wait, cancel=self._cancel, name="agent-command",
            wall_s=wall_s)
        self._waited_s += time.monotonic() - start - (outcome.wall_s - outcome.stopped_s)
        if outcome.ended == "timeout" and wall_s() < self._spec.command_s:
            self._limit = f"ran past its limit of {self._limits.wall_s:g} s"
        text = self._without_secrets((outcome.stdout + outcome.stderr).decode(errors="replace"))
        fault = "" if outcome.ended == "exit" else "the command " \
            + outcome.describe(replace(limits, wall_s=wall_s()))
        self._note(TranscriptEntry(step=message.step, at=time.time(), role="tool",
                                   text="\n".join(filter(None, (text, fault))),
                                   command=message.command, exit_code=outcome.returncode))
        return {"output": middle_cut(text, OUTPUT_CHARS), "exception_info": fault,
                "returncode": -1 if outcome.returncode is None else outcome.returncode}

    def _note(self, entry: TranscriptEntry) -> None:
        if entry.role in ("assistant", "tool"):
            self._hypothesis = hypothesis_in(
                self._without_secrets(entry.text)) or self._hypothesis
        with contextlib.suppress(OSError):  # the disk is full: the work goes on
            self._transcript.add(msgspec.structs.replace(
                entry, text=self._without_secrets(entry.text),
                command=self._without_secrets(entry.command), cost_usd=self.cost_usd))

    def _without_secrets(self, text: str) -> str:
        return cli.without_secrets(text, self._passed | screening_desk.secret(self._bench.kopt) | {
            "provider_key": self._key})

    @property
    def cost_usd(self) -> float | None:
        """The cost until now, None if the price of an answer is not known."""
        return self._cost if self._is_priced else None

    def _report(self, outcome: ProcessOutcome, limits: Limits) -> Report:
        name = f"{self._model}, {self._steps} steps, {dollars(self.cost_usd)}"
        if self._cancel.is_set():
            return self._ended(f"{name}: stopped after {outcome.wall_s:.0f} s")
        if outcome.ended == "timeout":
            cut = f"{name}: {outcome.describe(limits)}"
            return self._ended(cut, cut=cut)
        end = self._end
        if end is None:
            cut = f"{name}: its program {outcome.describe(limits)} " \
                f"{self._without_secrets(outcome.reason_line)}"
            return self._ended(cut, cut=cut)
        text = plain(" ".join(self._without_secrets(end.text).split()), 300)
        if self._limit:
            return self._ended(f"{name}: {self._limit}", cut=self._limit)
        return self._ended(f"{name}: {text}", cut="" if end.ok else text, is_outage=end.may_pass)

    def _ended(self, summary: str, *, cut: str = "", is_outage: bool = False) -> Report:
        return Report(ok=True, summary=plain(summary, 500), cut=plain(cut, 500), steps=self._steps,
                      cost_usd=self.cost_usd, hypothesis=self._hypothesis, is_outage=is_outage)
