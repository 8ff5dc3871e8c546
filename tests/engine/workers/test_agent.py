"""The backend `agent` with an HTTP server that speaks OpenAI's and Anthropic's protocols."""

from __future__ import annotations

import itertools
import operator
import os
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.manifest.pool_schema import AgentSpec
from engine.task import AgentProgress
from engine.workers import agent
from engine.workers.agent import AgentWorker
from engine.workers.model import model_process
from engine.workers.protocol import Report
from engine.workers.transcript import TRANSCRIPT, TranscriptReader
from harness.errors import InputError
from harness.isolation import guard
from tests.support.agents import worker_bench
from tests.support.agents.scripted_provider import SUBMIT, Fault, ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns

KEY = "sk-planted-0123456789"
LOOK = "cat /proc/*/environ | tr '\\0' '\\n' > seen; env >> seen; cat /proc/*/cmdline >> seen; " \
    "find / -xdev -name agent -maxdepth 8 2>/dev/null | head -3 >> seen; true"
TASK = worker_bench.task("agent", hypothesis="fewer passes", subagent="general-kernel-optimization")
pytestmark = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")


def work(root: Path, turns: Sequence[ScriptedTurn], model: str = "openai/gpt-4o",
         ticks: list[tuple[str, str, AgentProgress]] | None = None, project: Path | None = None,
         **spec: object) -> tuple[Report, ScriptedProvider]:
    def tick(stage: str, detail: str, done: float | None,
             agent: AgentProgress | None = None) -> None:
        if ticks is not None and agent is not None:
            ticks.append((stage, detail, agent))

    setup = campaigns.create(root / "campaign")
    (tree := root / "tree").mkdir()
    with ScriptedProvider(turns) as provider:
        base = provider.url + ("/v1" if model.startswith("openai") else "")
        worker = AgentWorker(AgentSpec(model=model, api_base=base,
                                       **spec), project or root / "project")  # type: ignore[arg-type]
        report = worker.work(TASK, worker_bench.bench(
            setup.target, setup.device, tree, root / "scratch", edit=("k.c",)), tick,
            threading.Event())
    return report, provider


@pytest.mark.parametrize("model", [
    "openai/gpt-4o", pytest.param("anthropic/claude-sonnet-4-5", marks=pytest.mark.slow)])
def test_an_agents_commands_never_see_the_key(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("AGENT_KEY", KEY)
    report, provider = work(tmp_path, [
        ScriptedTurn(text="First I look.", command=LOOK), ScriptedTurn(text="Now what?"),
        ScriptedTurn(command="  "), ScriptedTurn(command=f"echo {KEY}; echo done > k.c"),
        ScriptedTurn(command=SUBMIT)], model, key_env="AGENT_KEY")
    assert report.ok, report
    assert (report.steps, "submitted" in report.summary) == (5, True)
    assert report.cost_usd is not None and 0.001 < report.cost_usd < 0.1
    assert set(provider.keys) == {KEY} and os.environ["AGENT_KEY"] == KEY
    assert (tmp_path / "tree/k.c").read_text() == "done\n"
    seen = (tmp_path / "tree/seen").read_text(errors="replace")
    assert "PATH=" in seen and KEY not in seen
    assert "fewer passes" in str(provider.requests[0]["messages"])
    last = str(provider.requests[-1]["messages"])
    assert "No tool calls found" in last and "The command is empty" in last
    entries = TranscriptReader(tmp_path / "scratch" / TRANSCRIPT).read()
    assert {"assistant", "tool", "user"} <= {entry.role for entry in entries}
    for path in (tmp_path / "scratch").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


CLAUDE = "anthropic/claude-sonnet-4-5"


@pytest.mark.parametrize(("model", "fault", "told"), [
    pytest.param("openai/gpt-4o", "500", "InternalServerError", marks=pytest.mark.slow),
    ("openai/gpt-4o", "429", "RateLimitError"),
    ("openai/gpt-4o", "nonsense", "has neither text nor a tool call"),
    ("openai/gpt-4o", "silent", "no answer within 2 s"),
    pytest.param("openai/gpt-4o", "cut", "provider", marks=pytest.mark.slow),
    *(pytest.param(CLAUDE, fault, told, marks=pytest.mark.slow) for fault, told in (
        ("500", "InternalServerError"), ("429", "RateLimitError"), ("nonsense", "provider"),
        ("silent", "no answer within 2 s"), ("cut", "provider")))])
def test_a_provider_that_fails_ends_its_slot_in_one_line(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, fault: Fault,
        told: str) -> None:
    monkeypatch.setattr(model_process, "RETRY_WAIT_S", 0.05)
    report, provider = work(tmp_path, [ScriptedTurn(fault=fault, text="a b c d")] * 9, model,
                            answer_s=2.0)
    assert told in report.cut and told in report.summary and "\n" not in report.summary
    assert len(provider.requests) == (1 if fault == "silent" else 1 + model_process.RETRIES)


@pytest.mark.parametrize("model", [
    "openai/gpt-4o", pytest.param(CLAUDE, marks=pytest.mark.slow)])
def test_provider_may_stream_an_answer_for_longer_than_it_may_be_silent(
        tmp_path: Path, model: str) -> None:
    turns = [ScriptedTurn(text="I go slowly through it.", command="echo 1 > k.c", delay_s=0.5),
             ScriptedTurn(command=SUBMIT)]
    began = time.monotonic()
    report, provider = work(tmp_path, turns, model, answer_s=1.5)
    assert time.monotonic() - began > 1.5
    assert report.ok and not report.cut and len(provider.requests) == 2, report
    assert (tmp_path / "tree/k.c").read_text() == "1\n"


STRAYS = """
import json, socket, sys
result = []
for family, address in ((socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, "PATH")):
    try:
        socket.socket(family).connect(address)
    except OSError as error:
        result.append(type(error).__name__)
print(json.dumps({"kind": "end", "ok": True, "text": " ".join(result)}))
"""


@pytest.mark.skipif(bool(guard.confinement_problem()), reason="needs user namespaces")
def test_program_that_asks_a_model_has_no_network(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, \
            socket.socket(socket.AF_UNIX) as local:
        local.bind(path := tempfile.mktemp(prefix="kopt-"))
        local.listen()
        (child := tmp_path / "strays.py").write_text(STRAYS.replace(
            "PORT", str(other.getsockname()[1])).replace("PATH", path))
        monkeypatch.setattr(model_process, "CHILD", child)
        report, _ = work(tmp_path, [])
        Path(path).unlink()
        other.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert report.ok and report.summary.count("Error") == 2, report


SCRIPT = """
assert __file__.endswith("script.py")


def answer(messages):
    if messages[-1]["role"] == "user":
        return "Hypothesis: one pass is enough.", "echo 1 > k.c; cat /etc/hostname"
    if "<returncode>0" not in messages[-1]["content"]:
        raise LookupError("no such turn")
    return "", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""


def test_script_of_the_project_answers_in_place_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (script := tmp_path / "project" / "script.py").write_text(SCRIPT)
    report, provider = work(tmp_path, [], "scripted/script.py")
    assert report.ok and "scripted/script.py (a script, no model), 2 steps" in report.summary
    assert (report.steps, report.cost_usd, report.hypothesis) == (2, 0.0, "one pass is enough.")
    assert (tmp_path / "tree/k.c").read_text() == "1\n" and not provider.requests

    script.write_text(SCRIPT.replace("cat /etc/hostname", "false"))
    report, _ = work(tmp_path / "failing", [], "scripted/script.py", project=script.parent)
    assert "the script failed: LookupError: no such turn" in report.cut
    script.write_text("def answer(messages):\n    return 'a text alone, and no command'\n")
    report, _ = work(tmp_path / "wrong", [], "scripted/script.py", project=script.parent)
    assert "the script failed: ValueError: " in report.cut
    for name in ("missing.py", "../outside.py"):
        (tmp_path / "outside.py").write_text(SCRIPT)
        with pytest.raises(InputError, match="there is no file"):
            AgentWorker(AgentSpec(model=f"scripted/{name}"), script.parent)


@pytest.mark.skipif(bool(guard.confinement_problem()), reason="needs user namespaces")
def test_program_that_asks_a_model_starts_with_its_client_imported(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (child := tmp_path / "child.py").write_text(
        "import json, sys\nfound = sorted({'litellm', 'minisweagent'} & set(sys.modules))\n"
        "print(json.dumps({'kind': 'end', 'ok': True, 'text': f'found {found}'}))\n")
    monkeypatch.setattr(model_process, "CHILD", child)
    report, _ = work(tmp_path, [])
    assert "found ['litellm', 'minisweagent']" in report.summary


def test_one_failed_request_is_repeated_and_a_step_limit_keeps_the_candidate(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_process, "RETRY_WAIT_S", 0.05)
    ticks: list[tuple[str, str, AgentProgress]] = []
    report, _ = work(tmp_path, [ScriptedTurn(fault="429", retry_after="1"),
                                ScriptedTurn(command="echo 1 > k.c"),
                                ScriptedTurn(command="echo 2 > k.c")],
                     "openai/no-such-model", ticks=ticks, step_limit=1)
    assert (report.ok, report.cut) == (True, "its limit of 1 steps is reached")
    assert report.cost_usd is None and "cost unknown" in report.summary
    assert (tmp_path / "tree/k.c").read_text() == "1\n"
    own = [tick for tick in ticks if "waiting for cpu" not in tick[1]]
    stages = [stage for stage, _ in itertools.groupby(own, key=operator.itemgetter(0))]
    assert stages[:5] == ["starting", "asking", "waiting", "asking", "running"]
    waiting = next(detail for stage, detail, _ in own if stage == "waiting")
    assert "asked again in 1 s: the provider failed: RateLimitError" in waiting
    running = next(progress for stage, _, progress in own if stage == "running")
    assert (running.step, running.step_limit) == (1, 1)
    assert (running.command, running.cost_usd) == ("echo 1 > k.c", None)
