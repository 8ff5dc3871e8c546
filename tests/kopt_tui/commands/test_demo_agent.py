"""`kopt demo --agent`: whole campaigns in which a script plays the model, and the rest is real."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.campaign.setup import Setup, open_campaign
from engine.journal.decoded.recorded import verdict_of
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.workers import agent
from engine.workers.transcript import TranscriptReader
from harness.devices import inventory
from tests.support.engines import campaigns
from tests.support.programs.command_line import kopt

needs_extra = pytest.mark.skipif(bool(agent.missing_extra()), reason="needs the extra agent")


def demo(workspace: Path, *words: str) -> tuple[str, Setup]:
    """Run the demo in a pipe to its end; return what it printed and its campaign."""
    code, out, err = campaigns.ended(campaigns.kopt("demo", "--agent", *words,
                                                    workspace=workspace), limit_s=1500)
    assert code == 0, (out, err)
    with closing(Reader(workspace)) as reader:
        [campaign] = reader.campaigns()
    return out, open_campaign(workspace, campaign.id)


def rejected_and_repaired(setup: Setup, slot: str = "planned-1") -> tuple[Candidate, Candidate]:
    """Return a slot's two candidates, after a check that the second one repairs the first."""
    rejected, repaired = [candidate for candidate in campaigns.candidates(setup)
                          if candidate.slot == slot and not candidate.form_of]
    with campaigns.reading(setup) as reader:
        [decision] = reader.decisions(setup.id, candidate=rejected.id)
        [verdict] = reader.verdicts(setup.id, candidate=rejected.id)
        task = reader.task(setup.id, repaired.id)
    assert (decision.kind, rejected.state) == ("repair", "closed")
    assert decision.reason.startswith("wrong result: class ")
    assert verdict.valid and not verdict.correct and verdict.latency_us is None
    assert task is not None and task.repair is not None
    assert (task.repair.attempt, task.repair.candidate) == (1, rejected.id)
    return rejected, repaired


def said(setup: Setup, slot: str, attempt: int) -> str:
    """Return the script's texts and its commands' output in an attempt, from the transcript."""
    entries = TranscriptReader(setup.folder.transcript(2, slot, attempt)).read()
    assert {"user", "assistant", "tool"} <= {entry.role for entry in entries}
    return "\n".join(entry.text for entry in entries if entry.role in ("assistant", "tool"))


@needs_extra
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_campaign_with_a_repaired_candidate_an_approval_and_a_runner_up_kept_on_top(
        tmp_path: Path) -> None:
    printed, setup = demo(tmp_path)
    rejected, repaired = rejected_and_repaired(setup)
    assert "no model works in the agent's slots: a script answers" in printed
    assert printed.count("no terminal is attached") == 2

    with campaigns.reading(setup) as reader:
        heaviest = reader.bottlenecks(setup.id, 2)[0]
        decisions = list(reversed(reader.decisions(setup.id)))
    assert f"The bottleneck: {heaviest.id} {heaviest.limiter}" in said(setup, "planned-1", 1)
    assert rejected.reason.split(";")[0] in said(setup, "planned-1", 2)
    assert "1021 columns, no multiple of 16" in said(setup, "planned-1", 2)
    assert repaired.hypothesis.endswith("and the old loop adds the rest of a row.")

    first, second = campaigns.candidates(setup, "kept")
    assert {first.slot, second.slot} == {"planned-1", "fixed"}
    assert (second.base_commit, bool(second.form_of)) == (first.commit, True)
    kinds = [(decision.kind, decision.candidate) for decision in decisions]
    for expected in (("ask", first.id), ("runner-up", second.form_of), ("ask", second.id),
                     ("keep", first.id), ("keep", second.id)):
        assert expected in kinds
    assert all("@" in decision.actor for decision in decisions if decision.kind == "keep")
    campaigns.consistent(setup)
    source = setup.repo.read(setup.repo.best, "rmsnorm.c").decode()
    assert "row[k] * scale" in source and "wide[16]" in source
    assert campaigns.campaign(setup).speedup_low > 1.5  # type: ignore[operator]


@needs_extra
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_triton_demo_repairs_its_candidate_and_times_nothing_without_a_gpu(
        tmp_path: Path) -> None:
    _, setup = demo(tmp_path, "--example", "softmax_triton")
    _, repaired = rejected_and_repaired(setup)
    assert "different ones" in said(setup, "planned-1", 2)
    with campaigns.reading(setup) as reader:
        verdicts = [verdict_of(row) for row in reader.verdicts(setup.id, candidate=repaired.id)]
        decisions = reader.decisions(setup.id, candidate=repaired.id)
    assert all(verdict.valid and verdict.correct for verdict in verdicts) and verdicts
    if all(device.kind == "cpu" for device in inventory.inventory()):
        assert all(row.latency_us is None for verdict in verdicts for row in verdict.rows)
        assert [decision.kind for decision in decisions] == ["tie"]
        assert not campaigns.candidates(setup, "kept", "waiting")


def test_demo_without_the_extra_says_in_one_line_what_to_install(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)  # as if it were not installed
    done = kopt("demo", "--agent", workspace=tmp_path)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "needs litellm: pip install 'kopt[agent]'" in done.stderr
    assert "make demo-agent" in done.stderr and not (tmp_path / "projects").exists()


def test_demo_names_the_examples_that_have_a_script(tmp_path: Path) -> None:
    done = kopt("demo", "--agent", "--example", "matmul_c", workspace=tmp_path)
    assert done.returncode == 2
    assert "one of rmsnorm_c, softmax_triton" in done.stderr
