"""The `cli` backend: any command as a worker, such as a coding agent's.

The command runs in the worktree under the guard, with an allow-listed environment and a private
HOME; the task lies in a prompt file. What it leaves in the worktree is the candidate; what it
prints is a log, nothing more.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from engine.manifest.schema import CliSpec
from engine.task import Task
from engine.workers import split_prompt
from engine.workers.protocol import LOG, Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.compile import compiler_cache
from harness.errors import Refused
from harness.formats.text import plain
from harness.isolation import device_lock, guard
from harness.isolation.guard import Confine, Limits

LOG_BYTES = 1 << 20
HIDDEN = dict.fromkeys(
    ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "-1")
"""Shows no card to CUDA and ROCm: they are measured on, and whatever else runs there waits for the
gate.
"""
MAX_BRIEF = 8000
PROMPT = """# Make a kernel faster

{description}

{round}- Edit only `{source}` (entry point `{entry}`, language {language}) in this folder.
- It must still compute what `{reference}` computes, for every input of every shape below.
- One hypothesis for this attempt: {hypothesis}
- The bottleneck it attacks: {bottleneck}

Shapes (config classes): {classes}

{brief}When you end, your changes to the files are measured against the current best. Numbers and
claims that you report are not read. You cannot change the benchmark, the reference or the task.
"""
MEND = """## Repair, attempt {repair.attempt} of {repair.of}

Your last change is in this folder already, and it was rejected: {repair.complaint}

Mend it, and keep its hypothesis.

"""
OF_COMMAND = """# Make {op} faster

{round}- Edit only {edit} in this folder.
- It is built by: {build}
- It is measured by: {command}
  which writes {csv}; every row's {check} must hold, and {metrics} say how fast it is.
- One hypothesis for this attempt: {hypothesis}
- The bottleneck it attacks: {bottleneck}

{brief}When you end, the whole command is run again, in turn with the current best. Numbers and
claims that you report are not read. You cannot change the benchmark or its tests.
"""


class CliWorker:
    """Runs one of the manifest's commands; {prompt}, {worktree} and {python} are filled in."""

    def __init__(self, commands: Sequence[CliSpec]) -> None:
        self._commands = {command.name: command for command in commands}

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        command = self._commands.get(task.option)
        if command is None:
            raise Refused(f"the manifest has no cli worker {task.option!r}")
        home = Path(bench.scratch) / "home"
        home.mkdir(parents=True, exist_ok=True)
        prompt = home / "PROMPT.md"
        prompt.write_text(_prompt(task, bench))
        words = {"prompt": str(prompt), "worktree": bench.worktree, "python": sys.executable}
        argv = [_fill(part, words) for part in shlex.split(command.command)]
        limits = Limits(wall_s=min(command.timeout_s, bench.timeout_s), output_bytes=64 << 20,
                        memory_bytes=16 << 30)
        env = {} if command.gpu else dict(HIDDEN)
        env |= {name: os.environ[name] for name in command.env if name in os.environ}
        if bench.selftest_iterations is not None:
            env["KOPT_SELFTEST_ITERATIONS"] = str(bench.selftest_iterations)
        tick("working", command.name, None)
        outcome = guard.run(
            argv, cwd=Path(bench.worktree), limits=limits,
            env=guard.clean_env(compiler_cache.private(env, home), home=home),
            confine=Confine(writable=(bench.worktree, str(home)), network=command.network,
                            cards=command.gpu or not HIDDEN.keys().isdisjoint(command.env)),
            yields=device_lock.turnstile() if bench.device.kind == "cpu" else None,
            on_line=lambda line: tick("working", line[:400].decode(errors="replace"), None),
            cancel=cancel)
        said = (outcome.stdout + outcome.stderr)[-LOG_BYTES:].decode(errors="replace")
        (Path(bench.scratch) / LOG).write_text(plain(said, LOG_BYTES))
        if cancel.is_set():  # to judge what is there, or to be thrown away with its round
            return Report(ok=True, summary=f"{command.name} was ended after {outcome.wall_s:.0f} s")
        if outcome.ended == "timeout":
            cut = f"{command.name} {outcome.describe(limits)}"
            return Report(ok=True, summary=cut, cut=cut)
        if not outcome.ok:
            last = outcome.stderr.decode(errors="replace").strip().splitlines()[-1:]
            text = f"{command.name} {outcome.describe(limits)} {plain(' '.join(last), 200)}"
            return Report(ok=False, summary=text.strip())
        return Report(ok=True, summary=f"{command.name} ended after {outcome.wall_s:.0f} s")


def _fill(part: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        part = part.replace("{" + name + "}", value)
    return part


def _prompt(task: Task, bench: WorkerBench) -> str:
    target = bench.target
    brief = f"{plain(task.brief, MAX_BRIEF).rstrip()}\n\n" if task.brief else ""
    number = f"- This is round {task.round} of the campaign.\n" if task.round else ""
    if task.repair is not None:
        brief = MEND.format(repair=task.repair) + brief
    if task.split is not None:
        brief += split_prompt.asked(task.split, target, Path(bench.scratch) / "home",
                                 mends=task.repair is not None)
    if isinstance(target, CommandTarget):
        return OF_COMMAND.format(
            op=target.op, edit=", ".join(f"`{glob}`" for glob in bench.edit),
            command=target.command, csv=target.csv, check=target.check.column, brief=brief,
            round=number,
            metrics=", ".join(metric.name for metric in target.metrics),
            build=target.build_command or "nothing", hypothesis=plain(task.hypothesis),
            bottleneck=plain(task.bottleneck) or "not known")
    classes = "; ".join(
        f"{c.name} ({', '.join(f'{k}={v}' for k, v in c.shape.items())})" for c in target.classes)
    return PROMPT.format(
        description=target.description or f"The op is {target.op}.", source=target.source,
        entry=target.entry, language=target.language, reference=target.reference,
        hypothesis=plain(task.hypothesis), bottleneck=plain(task.bottleneck) or "not known",
        classes=classes, brief=brief, round=number)
