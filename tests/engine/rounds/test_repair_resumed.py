"""Repairs resume after `kill -9` with their hypothesis and their attempt number."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal.write import request
from engine.judge import candidate
from engine.repository.campaign_repo import CampaignRepo
from tests.support.engines import campaigns
from tests.support.engines.repair_case import (
    create,
    decisions,
    is_killed,
    same_when_killed,
    start_engine,
)


def kill(setup: Setup, running: subprocess.Popen[bytes]) -> None:
    running.send_signal(signal.SIGKILL)
    running.wait(30)
    campaigns.until(lambda: not campaigns.processes(setup.workspace), 30.0, "nothing is left")


def attempts(setup: Setup) -> list[int]:
    """Return the attempt number of each candidate."""
    with campaigns.reading(setup) as reader:
        tasks = [
            reader.task(setup.id, candidate.id) for candidate in reader.candidates(setup.id)
        ]
    return [task.repair.attempt if task.repair else 0 for task in tasks if task is not None]


@pytest.mark.slow
def test_killed_repair_resumes_as_the_same_attempt(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    setup = create(tmp_path, "--hold", str(hold))
    running = start_engine(setup)
    campaigns.until(lambda: len(decisions(setup)) == 2 and campaigns.slots(setup)["fixed"][0] ==
                    "working" and any("mending_agent" in process for process in
                                      campaigns.processes(setup.workspace)))
    kill(setup, running)
    before = decisions(setup)
    assert [kind for kind, _ in before] == ["repair", "repair"]
    hold.unlink()
    assert campaigns.run(setup).error is None
    made = decisions(setup)
    assert made[:2] == before and [kind for kind, _ in made[2:]] == ["keep"]
    assert attempts(setup) == [0, 1, 2]
    assert len({c.hypothesis for c in campaigns.candidates(setup)}) == 1
    assert campaigns.slots(setup)["fixed"][0] == "kept"
    with campaigns.reading(setup) as reader:
        assert [r.outcome for r in reader.rounds(setup.id)] == ["baseline", "keep"]
        assert sum(r.cost for r in reader.rounds(setup.id)) == 4.0  # one attempt ran twice
    campaigns.consistent(setup)


@pytest.mark.slow
def test_kills_after_every_decision_add_no_attempt(tmp_path: Path) -> None:
    setup = create(tmp_path, "--never")
    for count in (1, 2, 3):
        assert is_killed(setup)
        assert [kind for kind, _ in decisions(setup)] == ["repair"] * count
    assert campaigns.run(setup).error is None
    assert [kind for kind, _ in decisions(setup)] == ["repair", "repair", "repair", "reject"]
    assert attempts(setup) == [0, 1, 2, 3]
    assert campaigns.campaign(setup).state == "finished"


@pytest.mark.slow
def test_controls_are_read_while_a_repair_is_checked_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path)
    assert is_killed(setup)
    [entry] = campaigns.candidates(setup)
    wrong = candidate.load(setup, entry).tree
    shutil.rmtree(setup.folder.trees)
    seen: list[int] = []
    plain = CampaignRepo.checkout_tree

    def slow(repo: CampaignRepo, commit: str, directory: Path) -> None:
        if commit == wrong and not seen:
            control = request(setup.workspace, setup.id, "pause", by="eve")
            campaigns.until(lambda: applied(setup, control), 20.0, "the pause is looked at")
            seen.append(request(setup.workspace, setup.id, "resume", by="eve"))
        plain(repo, commit, directory)

    monkeypatch.setattr(CampaignRepo, "checkout_tree", slow)
    assert campaigns.run(setup).error is None
    assert seen and [kind for kind, _ in decisions(setup)] == ["repair", "repair", "keep"]


def applied(setup: Setup, control: int) -> bool:
    with campaigns.reading(setup) as reader:
        return any(each.id == control and each.applied_at for each in reader.controls(setup.id))


@pytest.mark.slow
def test_captured_candidate_is_judged_and_repaired_after_a_kill(tmp_path: Path) -> None:
    setup = create(tmp_path)
    running = start_engine(setup)
    campaigns.until(lambda: campaigns.candidates(setup, "captured"))
    kill(setup, running)
    assert campaigns.run(setup).error is None
    assert [kind for kind, _ in decisions(setup)] == ["repair", "repair", "keep"]
    assert attempts(setup) == [0, 1, 2]


@pytest.mark.slow
def test_repair_beyond_the_remaining_budget_is_not_resumed(tmp_path: Path) -> None:
    setup = create(tmp_path, "--never", budget={"pairs": 4, "cost": 2.5})
    assert is_killed(setup)
    assert campaigns.run(setup).error is None
    assert [kind for kind, _ in decisions(setup)] == ["repair"]
    stage, detail = campaigns.slots(setup)["fixed"]
    assert stage == "ended" and "more than what is left of the budget of 2.5" in detail


BY_COMMAND = """\
import sys
from pathlib import Path

attempt = Path(sys.argv[1]).read_text().partition("Repair, attempt ")[2][:1]
wrong = {"": "return 1", "1": "return 2"}.get(attempt, "return 0")
Path("kernel.py").write_text("COST = 80.0\\n\\ndef err(m):\\n    " + wrong + "\\n")
"""


@pytest.mark.slow
def test_killed_repairs_leave_the_records_of_an_undisturbed_run(tmp_path: Path) -> None:
    same_when_killed(tmp_path, BY_COMMAND, ["repair", "repair", "keep"])
