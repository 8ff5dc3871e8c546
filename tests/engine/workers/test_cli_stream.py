"""Agents that report in JSON lines: progress, transcript, steps, cost; hostile ones harm nobody."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.manifest.pool_schema import CliSpec
from engine.task import AgentProgress
from engine.workers.cli import CliWorker
from engine.workers.protocol import Report
from engine.workers.transcript import TRANSCRIPT, TranscriptEntry, TranscriptReader
from kopt_tui.snapshot import phrases
from tests.support.agents import worker_bench
from tests.support.engines import campaigns
from tests.support.paths import SUPPORT

KEY = "sk-planted-0123456789"


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return campaigns.create(tmp_path_factory.mktemp("streams"))


def work(setup: Setup, name: str, root: Path, *, timeout_s: float = 60.0
         ) -> tuple[Report, list[str], list[TranscriptEntry]]:
    """Return an agent's report, its progress in words, and its transcript after the prompt."""
    (tree := root / "tree").mkdir()
    (tree / "scale.c").write_text(campaigns.KERNEL)
    details: list[str] = []

    def tick(stage: str, detail: str, done: float | None,
             agent: AgentProgress | None = None, /) -> None:
        text = f"{phrases.agent(agent)}: {detail}"
        if "waiting for cpu" not in detail and text not in details:  # another test measures
            details.append(text)

    worker = CliWorker([CliSpec(
        name="coder", template="generic", env=("AGENT_KEY",), timeout_s=timeout_s,
        command=f"{{python}} {SUPPORT}/agents/streaming_agent.py {name} {{prompt}}")])
    bench = worker_bench.bench(setup.target, setup.device, tree, root / "scratch", baseline="",
                               edit=("scale.c",))
    report = worker.work(worker_bench.task("cli", option="coder"), bench, tick, threading.Event())
    asked, *entries = TranscriptReader(root / "scratch" / TRANSCRIPT).read(1 << 26)
    assert asked.role == "user" and "One hypothesis" in asked.text
    assert all(text.isprintable() for text in (report.summary, report.hypothesis))
    return report, details, entries


def test_progress_transcript_steps_and_cost_come_from_the_stream(
        setup: Setup, tmp_path: Path) -> None:
    report, details, entries = work(setup, "good", tmp_path)
    assert (report.ok, report.steps, report.cost_usd, report.hypothesis) == (
        True, 2, 0.5, "one pass")
    assert report.summary.endswith(' s: "Hypothesis: one pass"')
    assert details[1:] == ["step 1 cost unknown: cat scale.c",
                           "step 2 $0.50: Done. Hypothesis: one pass"]
    assert [(entry.role, entry.text, entry.command) for entry in entries] == [
        ("assistant", "I look.", "cat scale.c"), ("tool", campaigns.KERNEL[:40], ""),
        ("assistant", "Done.\nHypothesis: one pass", "")]
    assert (entries[-1].step, entries[-1].cost_usd) == (2, 0.5)


@pytest.mark.parametrize("name", ["torn", "huge", "nonsense", "escapes"])
def test_lines_that_are_no_events_do_not_hide_events(
        setup: Setup, tmp_path: Path, name: str) -> None:
    report, details, entries = work(setup, name, tmp_path)
    assert (report.ok, report.cost_usd, report.hypothesis) == (True, 0.5, "one pass"), report
    assert all(detail.isprintable() and len(detail) < 500 for detail in details[1:])
    if name == "torn":
        assert details[1] == "step 1 cost unknown: cat scale.c"
    if name == "escapes":
        assert (entries[0].text, entries[0].command) == ("red text", "rm -rf /")
        assert details[-1] == "step 2 $0.50: broken kopt: approved"


def test_key_in_a_stream_is_written_nowhere(
        setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KEY", KEY)
    report, details, entries = work(setup, "secret", tmp_path)
    assert report.cut and entries[0].command == "echo [AGENT_KEY]"
    assert KEY not in f"{report} {details}"
    for path in (tmp_path / "scratch").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_failed_agents_summary_states_the_error_of_its_stream(setup: Setup, tmp_path: Path) -> None:
    report, _, _ = work(setup, "fails", tmp_path)
    assert (bool(report.cut), report.cost_usd) == (True, 0.25)
    assert report.summary == 'coder exited with 3 "provider: 401 invalid x-api-key"'


@pytest.mark.slow
def test_endless_agent_and_its_children_die_at_the_limit(setup: Setup, tmp_path: Path) -> None:
    report, _, _ = work(setup, "endless", tmp_path, timeout_s=2.0)
    assert report.ok and (report.cut == "coder ran past its limit of 2 s" or
                          "printed more than" in report.summary)
    assert not campaigns.processes(tmp_path)
