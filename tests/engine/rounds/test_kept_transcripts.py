"""Every attempt of an agent keeps its own transcript, also one whose engine was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.workers import agent
from engine.workers.transcript import TranscriptReader
from harness.verdict import Row, Verdict
from tests.support.agents import agent_case
from tests.support.agents.scripted_provider import SUBMIT, ScriptedProvider, ScriptedTurn
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.instant_verdicts import Judged
from tests.support.engines.repair_case import start_engine
from tests.support.programs.command_line import kopt

LOOK, WRONG, RIGHT = "grep PASSES scale.c", \
    "sed -i 's/PASSES 16/PASSES 1/; s/2.0f/3.0f/' scale.c", "sed -i 's/3.0f/2.0f/' scale.c"
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")]


def costs(setup: Setup, tree: str) -> float:
    if b"3.0f" in setup.repo.read(tree, "scale.c"):
        raise Judged(Verdict(valid=True, correct=False,
                             rows=(Row(config_class="small", correct=False),)))
    return instant_verdicts.passes(setup, tree)


def commands(path: Path) -> list[str]:
    return [entry.command for entry in TranscriptReader(path).read() if entry.role == "assistant"]


def test_attempts_of_killed_resumed_and_repaired_work_have_transcripts_of_their_own(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [ScriptedTurn(command=LOOK), ScriptedTurn(fault="silent"),
             ScriptedTurn(command=WRONG), ScriptedTurn(command=SUBMIT),
             ScriptedTurn(command=RIGHT), ScriptedTurn(command=SUBMIT)]
    with ScriptedProvider(turns) as provider:
        setup = agent_case.create(tmp_path, provider)
        first, second, third = (setup.folder.transcript(2, "fixed", n) for n in (1, 2, 3))
        killed = start_engine(setup)
        try:
            campaigns.until(lambda: len(provider.requests) == 2)
            assert commands(first) == [LOOK]  # while its agent still works
        finally:
            killed.kill()
            killed.wait(30)
        before = first.read_bytes()
        instant_verdicts.install(monkeypatch, costs)
        campaigns.run(setup)
    assert first.read_bytes() == before
    assert (commands(second), commands(third)) == ([WRONG, SUBMIT], [RIGHT, SUBMIT])
    assert not setup.folder.transcript(2, "fixed", 4).exists()
    wrong, kept = campaigns.candidates(setup)
    assert kept.state == "kept"
    for candidate, path, number in ((wrong, second, 2), (kept, third, 3)):
        facts = json.loads(kopt("logs", candidate.id, "--json", workspace=setup.workspace).stdout)
        assert facts["transcript"] == str(path)
        assert facts["worker_log"].endswith(f"/worker-{number}.log")
    printed = kopt("logs", kept.id, "--file", third.name, workspace=setup.workspace).stdout
    assert f"step 1, assistant, $0.0035 so far\n$ {RIGHT}\n" in printed
