"""The `cli` backend: any command as a worker, such as a coding agent.

The command runs in the worktree under the guard, with an allow-listed environment and a private
HOME. A prompt file describes the task. The files that the command leaves in the worktree are the
candidate; its output is a log, in which a line `Hypothesis: ...` states what it tried.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.coding_agents import agent_stream
from engine.manifest.pool_schema import CliSpec
from engine.subagents import rendering, subagent_registry
from engine.subagents.subagent import Subagent
from engine.task import ModelAnswer, Task
from engine.workers import slot_facts
from engine.workers.cli_output import CliOutput
from engine.workers.model.attempt_limits import Allowance
from engine.workers.model.provider_routes import ProviderRoutes
from engine.workers.protocol import LOG, Report, Tick, WorkerBench
from engine.workers.slot import screening_desk
from engine.workers.transcript import TRANSCRIPT
from harness.compile import compiler_cache
from harness.devices.device import Device
from harness.errors import Refused
from harness.formats import shell_command
from harness.formats.text import plain, quoted
from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits

LOG_BYTES = 1 << 20
_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
LEAST_SECRET, LEAST_VALUE = 8, 16
"""Shorter values are not treated as secrets: of variables with such names, and of all others."""
HIDDEN = dict.fromkeys(
    ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "-1")
"""Hides all GPUs from CUDA and ROCm, since an agent's own runs would disturb the timing there."""


class CliWorker:
    """Runs one of the manifest's commands, in which it fills in {prompt}, {worktree}, {python}."""

    def __init__(self, commands: Sequence[CliSpec], project: Path | None = None) -> None:
        self._commands = {command.name: command for command in commands}
        self._project = project

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        command = self._commands.get(task.option)
        if command is None:
            raise Refused(f"the manifest has no cli worker {task.option!r}",
                          fix="add it to pool.cli")
        home = Path(bench.scratch) / "home"
        home.mkdir(parents=True, exist_ok=True)
        prompt = home / "PROMPT.md"
        subagent, system, text = prompts(task, bench, self._project)
        prompt.write_text(full_prompt := system + text)
        variables, argv = shell_command.split(shell_command.fill(command.command_line, {
            "prompt": str(prompt), "worktree": bench.worktree, "python": sys.executable}))
        subagent_s = subagent.timeout_s if subagent and subagent.timeout_s else math.inf
        limits = Limits(wall_s=min(command.timeout_s, bench.timeout_s, subagent_s),
                        output_bytes=64 << 20, memory_bytes=16 << 30)
        env = variables if command.gpu else variables | HIDDEN
        passed = {name: os.environ[name] for name in command.variables if name in os.environ}
        printed = CliOutput(command.agent, tick, lambda text: without_secrets(text, passed),
                            Path(bench.transcript or Path(bench.scratch) / TRANSCRIPT),
                            lambda cost, answers: bench.book(ModelAnswer(
                                round=task.round, slot=task.slot, attempt=task.attempt,
                                model=command.template, cost_usd=cost, answers=answers)))
        end = _SlotEnd(cancel, bench.allowance if command.agent else None)
        printed.begin(full_prompt)
        env |= passed
        passed |= screening_desk.secret(bench.kopt)
        with (_occupied_card(command, bench, tick, cancel) as card,
              _network(command, passed, Path(bench.scratch)) as routes):
            reach = routes.reach if routes else None
            if reach:  # the engine, not the command, connects through the proxy
                env = {name: value for name, value in env.items()
                       if not name.lower().endswith("_proxy")}
            tick("working", command.name, None)
            outcome = guard.run(
                argv, cwd=Path(bench.worktree), limits=limits,
                env=environment(bench, env | card.visible_env if card else env, home),
                confine=Confine(writable=(bench.worktree, str(home)), hidden=bench.hidden,
                                network=command.providers(passed) is None,
                                reach=reach, required=reach is not None,
                                cards=_uses_cards(command), nodes=card.nodes if card else ()),
                pass_fds=(reach.link,) if reach else (),
                yields=device_lock.turnstile(card.lock_name) if card else
                device_lock.turnstile() if bench.device.kind == "cpu" else None,
                on_line=printed.take,
                on_wait=lambda text: tick("waiting" if text else "working",
                                          text or command.name, None),
                cancel=end)
        printed.end(outcome.stdout)
        output = _printed(outcome.stdout + outcome.stderr, passed)[-LOG_BYTES:]
        (Path(bench.scratch) / LOG).write_text(plain(output, LOG_BYTES))
        ended = f"{command.name} ended after {outcome.wall_s:.0f} s"
        last_words = quoted(printed.last_words)
        report = Report(ok=True, summary=": ".join(filter(None, (ended, last_words))),
                        steps=printed.steps, cost_usd=printed.cost_usd,
                        hypothesis=printed.hypothesis(_printed(outcome.stdout, passed)))
        if cancel.is_set():  # the candidate so far is judged, or discarded with its round
            return msgspec.structs.replace(
                report, summary=f"{command.name} was stopped after {outcome.wall_s:.0f} s")
        if outcome.ok:
            return report
        if outcome.ended == "killed" and (over := end.over_budget):
            cut = f"{command.name} was stopped after {outcome.wall_s:.0f} s: budget: {over}"
            return msgspec.structs.replace(report, summary=cut, cut=cut)
        last = _printed(outcome.stderr, passed).strip().splitlines()[-1:]
        why = "" if outcome.ended == "timeout" else printed.error or plain(" ".join(last), 200)
        cut = f"{command.name} {outcome.describe(limits)} {quoted(why)}".strip()
        is_outage = outcome.ended == "exit" and bool(
            (routes and routes.unreached) or (command.agent and agent_stream.is_outage(why)))
        return msgspec.structs.replace(report, summary=cut, cut=cut, is_outage=is_outage)


class _SlotEnd(threading.Event):
    """Is set once the slot is cancelled, or once the models' budget is used if they count in it."""

    def __init__(self, cancel: threading.Event, allowance: Callable[[], Allowance] | None) -> None:
        super().__init__()
        self._cancel, self._allowance = cancel, allowance

    def is_set(self) -> bool:
        return self._cancel.is_set() or bool(self.over_budget)

    @property
    def over_budget(self) -> str:
        """Why no model is asked any more, "" while the budget has something left."""
        return self._allowance().over_budget if self._allowance else ""


def prompts(task: Task, bench: WorkerBench,
            project: Path | None) -> tuple[Subagent | None, str, str]:
    """Return a task's subagent, its system prompt, and the prompt for the task itself."""
    subagent = subagent_registry.load(project).get(task.subagent) if task.subagent else None
    system = "" if subagent is None else rendering.system_prompt(subagent, slot_facts.of_target(
        bench.target, edit=bench.edit, device=bench.device.label, python=bench.python)) + "\n"
    return subagent, system, prompt_text(
        task, bench, slot_facts.knowledge(bench, subagent, project))


def environment(bench: WorkerBench, env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of a slot's command: clean, with `env` and with caches of its own."""
    if bench.selftest_iterations is not None:
        env = {**env, "KOPT_SELFTEST_ITERATIONS": str(bench.selftest_iterations)}
    return screening_desk.environment(
        bench.kopt, guard.clean_env(compiler_cache.private(env, home), home=home))


def _printed(data: bytes, passed: Mapping[str, str]) -> str:
    """Return what a command printed, without the secrets among the variables passed to it."""
    return without_secrets(data.decode(errors="replace"), passed)


def without_secrets(text: str, passed: Mapping[str, str]) -> str:
    """Return a text without the values of variables that were passed to a command, nor their lines.

    A key of several lines may be printed line by line, or as a string of JSON. Short values stay:
    see LEAST_SECRET and LEAST_VALUE.
    """
    for name, value in passed.items():
        least = LEAST_SECRET if _SECRET.search(name) else LEAST_VALUE
        for part in dict.fromkeys((value, json.dumps(value)[1:-1], *value.splitlines())):
            if len(part.strip()) >= least:
                text = text.replace(part.strip(), f"[{name}]")
    return text


def _uses_cards(command: CliSpec) -> bool:
    return command.gpu or not HIDDEN.keys().isdisjoint(command.env)


@contextmanager
def _network(command: CliSpec, passed: Mapping[str, str],
             folder: Path) -> Iterator[ProviderRoutes | None]:
    """Yield routes to the only addresses that a command may reach, None if there is no such list.

    None is also yielded where commands cannot be confined.
    """
    providers = command.providers(passed)
    if not providers or guard.confinement_problem():
        yield None
        return
    with ProviderRoutes(providers, folder) as routes:
        yield routes


@contextmanager
def _occupied_card(command: CliSpec, bench: WorkerBench, tick: Tick,
                   cancel: threading.Event) -> Iterator[Device | None]:
    """Yield the card that a command may use, None if it may use none or kernels run on the CPU.

    The gate has found it free of strangers; the command is paused while something is timed there.
    """
    if bench.device.kind == "cpu" or not _uses_cards(command):
        yield None
        return
    with bench.fleet.occupy("loop", on_wait=lambda text: tick("waiting", text, None),
                            cancel=cancel) as occupied:
        yield occupied.device.cards[0]


def prompt_text(task: Task, bench: WorkerBench, knowledge: str = "") -> str:
    """Return the prompt for a task, with pages of `knowledge`.

    The files of a change to split are copied to the worker's HOME.
    """
    folder = Path(bench.scratch) / "home" / "candidate"
    if task.split is not None and not task.instructions:
        for path in task.split.changed:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(task.split.tree) / path, folder / path)
    return slot_facts.task_prompt(task, bench.target, folder, knowledge, edit=bench.edit,
                                  python=bench.python,
                                  screenings=bench.kopt.most if bench.kopt else 0)
