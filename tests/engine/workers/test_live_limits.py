"""A limit that a person changes applies to a running attempt at once, even within a command."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.manifest.pool_schema import AgentSpec
from engine.task import ModelAnswer
from engine.workers import agent
from engine.workers.agent import AgentWorker
from engine.workers.model.attempt_limits import Allowance
from engine.workers.protocol import Report
from harness.isolation import device_lock
from tests.support.agents import worker_bench
from tests.support.agents.scripted_provider import ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns

TASK = worker_bench.task("agent", slot="fixed", round=2, attempt=3)
pytestmark = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")


def work(path: Path, spec: AgentSpec, **fields: Any) -> Report:
    """Let an agent work in path/tree."""
    setup, tree = campaigns.create(path), path / "tree"
    tree.mkdir()
    return AgentWorker(spec).work(TASK, worker_bench.bench(
        setup.target, setup.device, tree, path / "scratch", edit=("k.c",),
        transcript=str(path / "kept" / "transcript-3.jsonl"), **fields),
        lambda *_: None, threading.Event())


def test_a_raised_step_limit_and_a_lowered_time_limit_apply_to_a_running_attempt(
        tmp_path: Path) -> None:
    tree = tmp_path / "tree"
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

        report = work(tmp_path, spec, allowance=lambda: allowed[0], book=book)
    assert (tree / "one").exists() and report.ok
    assert report.cut.endswith("ran past its limit of 1 s") and report.steps == 2
    assert {(each.round, each.slot, each.attempt, each.model) for each in answers} == {
        (2, "fixed", 3, "openai/gpt-4o")}
    assert [(each.cost_usd, each.tokens_read, each.tokens_written) for each in answers] == [
        (pytest.approx(0.0035), 1000, 100)] * 2
    assert (tmp_path / "kept" / "transcript-3.jsonl").exists()


@pytest.mark.slow
def test_waiting_for_a_measurement_does_not_count_against_the_time_limit(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    turns = [ScriptedTurn(command="sleep 1; touch one"),
             ScriptedTurn(command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
    measurement = device_lock.acquire("cpu")
    threading.Timer(16, measurement.release).start()
    with ScriptedProvider(turns) as provider:
        report = work(tmp_path, AgentSpec(
            model="openai/gpt-4o", api_base=f"{provider.url}/v1", timeout_s=15), timeout_s=900)
    assert (tmp_path / "tree" / "one").exists() and not report.cut and report.steps == 2
