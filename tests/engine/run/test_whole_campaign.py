"""A whole campaign: what it keeps, what it records, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import context
from engine.campaign.setup import Setup
from tests.support import repos
from tests.support.engines import campaigns


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setup, dict[str, str]]:
    """Run a campaign of one round; return it and the earlier state of the user's repository."""
    root = tmp_path_factory.mktemp("engine")
    setup = campaigns.create(root, max_iterations=1,
                             pool={"slots": 2, "trials": 2, "workers": 2})
    (root / "p" / "notes.txt").write_text("mine\n")
    (root / "p" / "staged.txt").write_text("mine too\n")
    repos.git(root / "p", "add", "staged.txt")
    before = state_of(root / "p")
    engine = campaigns.run(setup)
    assert engine.error is None
    return setup, before


def state_of(user: Path) -> dict[str, str]:
    return {"head": repos.git(user, "rev-parse", "HEAD"),
            "branch": repos.git(user, "symbolic-ref", "HEAD"),
            "status": repos.git(user, "status", "--porcelain"),
            "index": repos.git(user, "ls-files", "-s"),
            "source": (user / "scale.c").read_text()}


def test_gain_is_kept_and_reported(ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    campaign = campaigns.campaign(setup)
    assert campaign.state == "finished" and "max_iterations" in campaign.reason
    assert len(campaigns.consistent(setup)) >= 1
    assert campaign.speedup is not None and campaign.speedup > 2


def test_knob_is_written_back_and_commit_states_reason(
        ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    first = campaigns.consistent(setup)[0]
    assert b"#define PASSES 1 " in setup.repo.read(first, "scale.c")
    message = repos.message(setup.repo.git_dir, first)
    for word in ("Why it is faster: PASSES 16 -> 1", "Gained: ", "of roofline)",
                 "Aimed at: ", "Measured:", "Classes: small",
                 "Candidate:"):
        assert word in message
    assert setup.repo.files(first) == setup.repo.files(setup.repo.base)


def test_user_files_are_untouched(ended: tuple[Setup, dict[str, str]]) -> None:
    setup, before = ended
    assert state_of(setup.repo.project) == before
    branches = repos.git(setup.repo.project, "branch", "--format=%(refname:short)").split()
    assert sorted(branches) == ["main", f"optimize/{setup.id}"]


def test_headline_is_a_verdict_against_baseline(
        ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    repo = setup.repo
    with campaigns.reading(setup) as reader:
        row = reader.verdict(setup.id, repo.best[:12], purpose="headline",
                             incumbent_tree=repo.tree_of(repo.base), harness_version="1")
    assert row is not None and row.correct
    assert row.speedup == campaigns.campaign(setup).speedup


def test_looks_are_counted_from_the_recorded_verdicts(
        ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    with campaigns.reading(setup) as reader:
        purposes = [row.purpose for row in reader.verdicts(setup.id)]
        spent = context.count_looks(reader, setup.id)
    assert {"baseline", "headline"} <= set(purposes)
    assert spent == purposes.count("verify")


def test_fixed_slot_is_last_and_every_slot_ends(
        ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    with campaigns.reading(setup) as reader:
        for round in reader.rounds(setup.id):
            assert round.ended_at is not None
            slots = reader.slots(setup.id, round.n)
            assert round.n == 1 or slots[-1].slot == "fixed"
            assert all(slot.stage not in ("queued", "searching", "verifying") for slot in slots)
            assert all(slot.hypothesis for slot in slots)
            aimless = [slot.slot for slot in slots if not slot.bottleneck]
            assert aimless == ["fixed"] * (round.n > 1)  # a search of all knobs has no aim


def test_record_files_are_complete(ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    folder = setup.folder.path
    performance = (folder / "performance.md").read_text()
    for commit in campaigns.consistent(setup):
        assert performance.count(commit[:12]) == 1 + (commit == setup.repo.best)
    assert performance.count("| baseline |") == 1
    assert performance.count("Stop Summary") == 1 and "max_iterations" in performance
    for n in (1, 2):
        summary = folder / "rounds" / f"round-{n}" / "summary.md"
        assert f"# Round {n}" in summary.read_text()
        assert (summary.parent / "kernel_snapshot" / "scale.c").is_file()
    rows = (folder / "results.tsv").read_text().splitlines()
    assert len(rows) > 4 and all(len(row.split("\t")) == 12 for row in rows)
    assert "Round 2: keep" in (folder / "logs" / "optimize.md").read_text()
    trend = (folder / "logs" / "performance_trend.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")] for line in trend.splitlines()[4:]]
    assert [cells[1] for cells in lines if cells[2] != "class"] == ["1", "2"]
    assert [cells[1] for cells in lines if cells[2] == "class"][:2] == ["1", "2"]
    kept = campaigns.candidates(setup, "kept")[0]
    place = folder / "rounds" / "round-2" / "candidates" / kept.slot
    assert (place / f"{kept.id}.patch").is_file()
    assert (place / f"{kept.id}.verdict.json").is_file()


def test_no_process_worktree_or_lease_remains(ended: tuple[Setup, dict[str, str]]) -> None:
    setup, _ = ended
    assert campaigns.processes(setup.workspace) == []
    assert list((setup.folder.path / "worktrees").iterdir()) == []
    with campaigns.reading(setup) as reader:
        lease = reader.lease(setup.id)
    assert lease is None
