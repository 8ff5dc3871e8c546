"""`kopt demo --agent`: whole campaigns whose agents a script answers; all else is kopt's own."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.campaign.setup import Setup, open_campaign
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.judge.judge import verdict_of
from engine.workers import agent
from engine.workers.transcript import TranscriptReader
from harness.devices import inventory
from tests.support import campaigns
from tests.support.command_line import kopt

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
    rejected, repaired = [own for own in campaigns.candidates(setup)
                          if own.slot == slot and not own.form_of]
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
    """Return what the script said and saw in an attempt, by its transcript."""
    entries = TranscriptReader(setup.folder.transcript(2, slot, attempt)).read()
    assert {"user", "assistant", "tool"} <= {entry.role for entry in entries}
    return "\n".join(entry.text for entry in entries if entry.role in ("assistant", "tool"))


@needs_extra
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_agent_reads_a_bottleneck_is_repaired_approved_and_gets_a_runner_up_on_top(
        tmp_path: Path) -> None:
    printed, setup = demo(tmp_path)
    rejected, repaired = rejected_and_repaired(setup)
    assert "no model works in the agent's slots: a script answers" in printed
    assert printed.count("nobody is at a terminal") == 2

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
    kinds = [(own.kind, own.candidate) for own in decisions]
    for mine in (("ask", first.id), ("runner-up", second.form_of), ("ask", second.id),
                 ("keep", first.id), ("keep", second.id)):
        assert mine in kinds
    assert all("@" in own.actor for own in decisions if own.kind == "keep")
    campaigns.consistent(setup)
    source = setup.repo.read(setup.repo.best, "rmsnorm.c").decode()
    assert "row[k] * scale" in source and "wide[16]" in source
    assert campaigns.campaign(setup).speedup_low > 1.5  # type: ignore[operator]


@needs_extra
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_agent_on_a_triton_kernel_is_repaired_and_without_a_gpu_only_correct(
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
        assert [own.kind for own in decisions] == ["tie"]
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
