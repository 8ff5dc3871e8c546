"""One request to a real HTTP server for a model: an answer with its cost, or a fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.manifest.pool_schema import AgentSpec, PoolSpec, RequestSpec
from engine.workers import agent
from engine.workers.model import model_process
from engine.workers.model.model_process import RequestAnswer
from engine.workers.transcript import TRANSCRIPT, TranscriptReader
from tests.support.agents.scripted_provider import TOKENS, ScriptedProvider, ScriptedTurn

KEY = "sk-planted-0123456789"
AGENT = AgentSpec(model="openai/gpt-5", api_base="http://x", key_env="KEY", timeout_s=5)
needs_extra = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")


def ask(root: Path, turns: Sequence[ScriptedTurn], model: str = "openai/gpt-4o",
        cancel: threading.Event | None = None, **spec: object
        ) -> tuple[RequestAnswer, ScriptedProvider]:
    with ScriptedProvider(turns) as provider:
        base = provider.url + ("/v1" if model.startswith("openai") else "")
        return model_process.ask(
            RequestSpec(model=model, api_base=base, **spec),  # type: ignore[arg-type]
            "You plan.", "Propose.", root, root / TRANSCRIPT, name="planner", yields=None,
            cancel=cancel or threading.Event()), provider


@needs_extra
def test_answer_comes_with_its_cost_after_a_repeated_request(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_KEY", KEY)
    monkeypatch.setattr(model_process, "RETRY_WAIT_S", 0.05)
    answer, provider = ask(tmp_path, [
        ScriptedTurn(fault="429"), ScriptedTurn(text=f"An idea, {KEY}.")],
        "anthropic/claude-sonnet-4-5", key_env="PLANNER_KEY")
    assert answer.text.strip() == "An idea, [provider_key]." and not answer.fault
    assert answer.cost_usd is not None and 0.001 < answer.cost_usd < 0.1
    assert provider.keys == [KEY, KEY] and "tools" not in provider.requests[-1]
    assert (answer.tokens_read, answer.tokens_written) == TOKENS
    entries = TranscriptReader(tmp_path / TRANSCRIPT).read()
    assert [(entry.role, entry.text.strip()) for entry in entries] == [
        ("system", "You plan."), ("user", "Propose."), ("assistant", answer.text.strip())]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


@needs_extra
def test_silent_provider_times_out_and_its_cost_is_unknown(tmp_path: Path) -> None:
    answer, _ = ask(tmp_path, [ScriptedTurn(fault="silent")], timeout_s=2.0)
    assert answer == RequestAnswer(fault="no answer within 2 s", cost_usd=None)


@needs_extra
def test_ending_campaign_ends_the_request(tmp_path: Path) -> None:
    cancel, began = threading.Event(), time.monotonic()
    threading.Timer(0.5, cancel.set).start()
    answer, _ = ask(tmp_path, [ScriptedTurn(fault="silent")], cancel=cancel)
    assert answer.fault and time.monotonic() - began < 60.0


def test_missing_key_and_wrong_address_are_reported(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_KEY", raising=False)
    assert "PLANNER_KEY is empty or not set" in ask(tmp_path, [], key_env="PLANNER_KEY")[0].fault
    wrong = model_process.ask(RequestSpec(model="x", api_base="nowhere"), "", "", tmp_path,
                              tmp_path / TRANSCRIPT, name="planner", yields=None,
                              cancel=threading.Event())
    assert "'nowhere' is not an address" in wrong.fault


@pytest.mark.parametrize(("pool", "model"), [
    (PoolSpec(), None), (PoolSpec(agent=AGENT, planner="none"), None),
    (PoolSpec(agent=AGENT), RequestSpec(model="openai/gpt-5", api_base="http://x",
                                        key_env="KEY")),
    (PoolSpec(agent=AgentSpec(model="scripted/answers.py")), None),
    (PoolSpec(planner=RequestSpec(model="y")), RequestSpec(model="y")),
    (PoolSpec(agent=AGENT, planner=RequestSpec(model="y")), RequestSpec(model="y"))])
def test_planner_uses_the_agents_model_unless_the_manifest_says_otherwise(
        pool: PoolSpec, model: RequestSpec | None) -> None:
    assert model_process.model_of(pool, "planner") == model
