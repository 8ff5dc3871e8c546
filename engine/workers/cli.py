"""The `cli` backend: any command as a worker, such as a coding agent.

The command runs in the worktree under the guard, with an allow-listed environment and a private
HOME. A prompt file describes the task. The files that the command leaves in the worktree are the
candidate; its output is a log, of which a line `Hypothesis: ...` names what it tried.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.manifest.schema import CliSpec
from engine.task import Task
from engine.workers.agent_prompt import prompt_text
from engine.workers.protocol import LOG, Report, Tick, WorkerBench
from harness.compile import compiler_cache
from harness.devices.device import Device
from harness.errors import Refused
from harness.formats import shell_command
from harness.formats.text import plain
from harness.isolation import device_lock, guard
from harness.isolation.guard import Confine, Limits

LOG_BYTES = 1 << 20
_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_HYPOTHESIS = re.compile(r"^Hypothesis: *(\S.*)$", re.MULTILINE)
LEAST_SECRET = 8
"""Shorter values of such variables are not secrets."""
HIDDEN = dict.fromkeys(
    ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "-1")
"""Hides all GPUs from CUDA and ROCm: kernels are timed on them, and an agent's own runs would
disturb that.
"""


class CliWorker:
    """Runs one of the manifest's commands, in which it fills in {prompt}, {worktree}, {python}."""

    def __init__(self, commands: Sequence[CliSpec]) -> None:
        self._commands = {command.name: command for command in commands}

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        command = self._commands.get(task.option)
        if command is None:
            raise Refused(f"the manifest has no cli worker {task.option!r}",
                          fix="add it to pool.cli")
        home = Path(bench.scratch) / "home"
        home.mkdir(parents=True, exist_ok=True)
        prompt = home / "PROMPT.md"
        prompt.write_text(prompt_text(task, bench))
        variables, argv = shell_command.split(shell_command.fill(command.command, {
            "prompt": str(prompt), "worktree": bench.worktree, "python": sys.executable}))
        limits = Limits(wall_s=min(command.timeout_s, bench.timeout_s), output_bytes=64 << 20,
                        memory_bytes=16 << 30)
        env = variables if command.gpu else variables | HIDDEN
        passed = {name: os.environ[name] for name in command.env if name in os.environ}
        env |= passed
        if bench.selftest_iterations is not None:
            env["KOPT_SELFTEST_ITERATIONS"] = str(bench.selftest_iterations)
        with _card(command, bench, tick, cancel) as card:
            tick("working", command.name, None)
            outcome = guard.run(
                argv, cwd=Path(bench.worktree), limits=limits,
                env=guard.clean_env(compiler_cache.private(
                    env | card.visible_env if card else env, home), home=home),
                confine=Confine(writable=(bench.worktree, str(home)), network=command.network,
                                cards=_uses_cards(command), nodes=card.nodes if card else ()),
                yields=device_lock.turnstile(card.lock_name) if card else
                device_lock.turnstile() if bench.device.kind == "cpu" else None,
                on_line=lambda line: tick("working", _printed(line, passed)[:400], None),
                on_wait=lambda text: tick("waiting" if text else "working",
                                          text or command.name, None),
                cancel=cancel)
        output = _printed(outcome.stdout + outcome.stderr, passed)[-LOG_BYTES:]
        (Path(bench.scratch) / LOG).write_text(plain(output, LOG_BYTES))
        if cancel.is_set():  # the candidate so far is judged, or discarded with its round
            return Report(ok=True,
                          summary=f"{command.name} was stopped after {outcome.wall_s:.0f} s")
        if outcome.ended == "timeout":
            cut = f"{command.name} {outcome.describe(limits)}"
            return Report(ok=True, summary=cut, cut=cut)
        if not outcome.ok:
            last = _printed(outcome.stderr, passed).strip().splitlines()[-1:]
            text = f"{command.name} {outcome.describe(limits)} {plain(' '.join(last), 200)}"
            return Report(ok=False, summary=text.strip())
        return Report(ok=True, summary=f"{command.name} ended after {outcome.wall_s:.0f} s",
                      hypothesis=_hypothesis(_printed(outcome.stdout, passed)))


def _hypothesis(output: str) -> str:
    """Return the last hypothesis that a command printed, "" if none."""
    stated = _HYPOTHESIS.findall(output)
    return plain(stated[-1], 300) if stated else ""


def _printed(data: bytes, passed: Mapping[str, str]) -> str:
    """Return what a command printed, without the secrets among the variables passed to it."""
    text = data.decode(errors="replace")
    for name, value in passed.items():
        if _SECRET.search(name) and len(value) >= LEAST_SECRET:
            text = text.replace(value, f"[{name}]")
    return text


def _uses_cards(command: CliSpec) -> bool:
    return command.gpu or not HIDDEN.keys().isdisjoint(command.env)


@contextmanager
def _card(command: CliSpec, bench: WorkerBench, tick: Tick,
          cancel: threading.Event) -> Iterator[Device | None]:
    """Yield the card that a command may use, None if it may use none or kernels run on the CPU.

    The gate has found it free of strangers; while something is measured on it, the command stops.
    """
    if bench.device.kind == "cpu" or not _uses_cards(command):
        yield None
        return
    with bench.fleet.occupy("loop", on_wait=lambda text: tick("waiting", text, None),
                            cancel=cancel) as occupied:
        yield occupied.device.cards[0]
