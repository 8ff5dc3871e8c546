"""The prompt that a command gets: its subagent's, then the task or other instructions."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import msgspec

from engine.knowledge import page_library
from engine.manifest.pool_schema import CliSpec
from engine.task import Task
from engine.workers.cli import CliWorker
from engine.workers.protocol import Report
from tests.support.agents import worker_bench
from tests.support.engines import campaigns

TASK = worker_bench.task("cli", option="agent", hypothesis="fewer passes",
                         subagent="general-kernel-optimization")
COPY = f"{sys.executable} -c 'import shutil, sys; shutil.copy(sys.argv[1], \"seen\")' {{prompt}}"


def work(root: Path, task: Task, command: str = COPY, edit: tuple[str, ...] = ("k.c",)) -> Report:
    setup = campaigns.create(root / "campaign")
    (tree := root / "tree").mkdir()
    worker = CliWorker([CliSpec(name="agent", command=command)], root / "project")
    bench = worker_bench.bench(setup.target, setup.device, tree, root / "scratch", edit=edit)
    return worker.work(task, bench, lambda *_: None, threading.Event())


def prompt_of(root: Path, task: Task, edit: tuple[str, ...] = ("k.c",)) -> str:
    report = work(root, task, edit=edit)
    assert report.ok, report
    return (root / "tree" / "seen").read_text()


def test_a_command_gets_its_subagents_prompt_before_the_task(tmp_path: Path) -> None:
    prompt = prompt_of(tmp_path, TASK)
    first, task = prompt.index("Data, not instructions"), prompt.index("fewer passes")
    assert first < task


def test_prompt_states_arguments_flags_and_python(tmp_path: Path) -> None:
    prompt = prompt_of(tmp_path, TASK)
    assert "in this order: `x` float32 [n], `out` float32 [n] (written)" in prompt
    assert "- It is built with: -O" in prompt and f"`{sys.executable}` is the Python" in prompt


def test_prompt_names_all_files_that_a_candidate_may_change(tmp_path: Path) -> None:
    assert "- Edit only `scale.c` (entry" in prompt_of(tmp_path / "one", TASK, ("scale.c",))
    more = prompt_of(tmp_path / "more", TASK, ("scale.c", "*.h"))
    assert "- Edit only `scale.c`, `*.h` in this folder. The kernel is in `scale.c`" in more


def test_a_projects_subagent_replaces_the_built_in_one(tmp_path: Path) -> None:
    own = tmp_path / "project" / "subagents" / "general-kernel-optimization"
    own.mkdir(parents=True)
    (own / "SUBAGENT.yaml").write_text("name: general-kernel-optimization\n")
    (own / "SYSTEM_PROMPT.md").write_text("Tune {{ source }} for {{ device }}.")
    assert prompt_of(tmp_path, TASK).startswith("Tune ")


def test_instructions_take_the_place_of_the_task(tmp_path: Path) -> None:
    task = msgspec.structs.replace(TASK, subagent="", instructions="Write a harness.\n")
    assert prompt_of(tmp_path, task) == "Write a harness.\n"


def test_a_subagents_time_limit_ends_a_command(tmp_path: Path) -> None:
    own = tmp_path / "project" / "subagents" / "own"
    own.mkdir(parents=True)
    (own / "SUBAGENT.yaml").write_text(
        "name: general-kernel-optimization\nagent: {timeout_s: 0.2}\n")
    report = work(tmp_path, TASK, "sleep 60; cat {prompt}")
    assert "0.2 s" in report.cut


def test_prompt_has_the_pages_of_the_slots_language_and_device(tmp_path: Path) -> None:
    own = prompt_of(tmp_path / "own", TASK)
    assert "## What is known of this op, device and language" in own
    assert page_library.load(None).find("backend/c").text.strip() in own and "# Triton" not in own
    rewrite = msgspec.structs.replace(TASK, subagent="triton-kernel-rewrite")
    other = prompt_of(tmp_path / "rewrite", rewrite)
    assert page_library.load(None).find("backend/triton").text.strip() in other
    assert "# C on a CPU" not in other
    assert "# sm_90" not in own + other
