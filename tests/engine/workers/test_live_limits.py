"""Limits that a person changes reach an attempt of an agent that works, also within a command."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from engine.manifest.pool_schema import AgentSpec
from engine.task import ModelAnswer, Task
from engine.verify.fleet import Fleet
from engine.workers import agent
from engine.workers.agent import AgentWorker
from engine.workers.model.attempt_limits import Allowance
from engine.workers.protocol import WorkerBench
from harness.isolation.zygote_client import WarmStart
from tests.support import campaigns
from tests.support.scripted_provider import ScriptedProvider, ScriptedTurn

TASK = Task(slot="fixed", kind="planned", backend="agent", hypothesis="h", bottleneck="", seed=1,
            trials=1, round=2, attempt=3)
pytestmark = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")


def test_a_raised_step_limit_and_a_lowered_time_limit_reach_an_attempt_that_works(
        tmp_path: Path) -> None:
    setup, tree = campaigns.create(tmp_path), tmp_path / "tree"
    tree.mkdir()
    turns = [ScriptedTurn(command="touch one"), ScriptedTurn(command="touch two; sleep 600")]
    answers: list[ModelAnswer] = []
    with ScriptedProvider(turns) as provider:
        spec = AgentSpec(model="openai/gpt-4o", api_base=f"{provider.url}/v1", step_limit=1,
                         timeout_s=900)
        allowed = [Allowance(agent=spec, worker_timeout_s=900)]

        def change(**fields: float) -> None:
            allowed[0] = msgspec.structs.replace(
                allowed[0], agent=msgspec.structs.replace(spec, **fields))

        def book(answer: ModelAnswer) -> None:
            answers.append(answer)
            if len(answers) == 1:
                change(step_limit=9, timeout_s=900)
            else:
                threading.Thread(target=lower).start()

        def lower() -> None:
            campaigns.until((tree / "two").exists)
            change(step_limit=9, timeout_s=1)

        report = AgentWorker(spec).work(TASK, WorkerBench(
            target=setup.target, device=setup.device, worktree=str(tree), baseline=str(tree),
            base_commit="", scratch=str(tmp_path / "scratch"), edit=("k.c",),
            transcript=str(tmp_path / "kept" / "transcript-3.jsonl"),
            fleet=Fleet([(setup.device, WarmStart(None))], retry_s=1.0, limit_s=1.0),
            allowance=lambda: allowed[0], book=book), lambda *_: None, threading.Event())
    assert (tree / "one").exists() and report.ok
    assert report.cut.endswith("ran past its limit of 1 s") and report.steps == 2
    assert {(own.round, own.slot, own.attempt, own.model) for own in answers} == {
        (2, "fixed", 3, "openai/gpt-4o")}
    assert [(own.cost_usd, own.tokens_read, own.tokens_written) for own in answers] == [
        (pytest.approx(0.0035), 1000, 100)] * 2
    assert (tmp_path / "kept" / "transcript-3.jsonl").exists()
