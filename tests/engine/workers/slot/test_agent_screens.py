"""An agent screens its change, reads the JSON, corrects its kernel, screens again and submits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.workers import agent
from engine.workers.transcript import TranscriptReader
from tests.support.agents import agent_case
from tests.support.agents.scripted_provider import (
    SUBMIT,
    Message,
    ScriptedProvider,
    ScriptedTurn,
)
from tests.support.engines import campaigns

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")]


class Screening:
    """A scripted model: it corrects its kernel if a screening finds it wrong, else submits."""

    def __init__(self) -> None:
        self.verdicts: list[dict[str, object]] = []

    def __call__(self, messages: list[Message]) -> ScriptedTurn:
        told = [str(message["content"]) for message in messages if message["role"] == "tool"]
        if not told:
            return ScriptedTurn(command="sed -i 's/2.0f/3.0f/; s/PASSES 16 /PASSES 1 /' scale.c"
                                "; kopt evaluate --json")
        self.verdicts.append(json.loads(told[-1].split("<output>\n")[1].split("\n</output>")[0]))
        if self.verdicts[-1]["correct"]:
            return ScriptedTurn(text=f"{self.verdicts[-1]['speedup']} times as fast",
                                command=SUBMIT)
        return ScriptedTurn(text=str(self.verdicts[-1]["rejected_reason"]),
                            command="sed -i 's/3.0f/2.0f/' scale.c && kopt evaluate --json")


def test_agent_corrects_its_kernel_by_screenings_that_are_not_recorded(tmp_path: Path) -> None:
    script = Screening()
    with ScriptedProvider(script) as provider:
        setup = agent_case.create(tmp_path, provider)
        campaigns.run(setup)
    assert [found["correct"] for found in script.verdicts] == [False, True]
    assert "`kopt evaluate --json`" in str(provider.requests[0]["messages"])
    with campaigns.reading(setup) as reader:
        (made,) = reader.candidates(setup.id)
        assert made.state == "kept", made
        purposes = {row.purpose for row in reader.verdicts(setup.id)}
        assert purposes and "screening" not in purposes and not reader.trials(setup.id)
        assert {entry.n: entry.trials for entry in reader.rounds(setup.id)}[2] == 2
    text = setup.folder.transcript(2, "fixed", 1)
    entries = TranscriptReader(text).read()
    assert any("kopt evaluate" in entry.command and '"valid":true' in entry.text
               for entry in entries if entry.role == "tool")
