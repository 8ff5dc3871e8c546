"""Tests that a person can take back a rejection: the candidate is measured, and waits again."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.campaign.setup import Setup, open_campaign
from engine.run import host
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.campaigns import command


@pytest.fixture
def rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Return a finished campaign whose only gain a person has rejected."""
    setup = campaigns.create_with_patch(tmp_path, max_iterations=1, approval="review")
    with monkeypatch.context() as patched:
        instant_verdicts.install(patched)
        assert campaigns.run(setup).error is None
    assert command("reject", "--reason", "hasty", workspace=setup.workspace)[0] == 0
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
    [candidate] = campaigns.candidates(setup)
    assert candidate.state == "closed" and candidate.reason.endswith(": hasty")
    return setup


def without_review(setup: Setup) -> Setup:
    """Return the campaign with another manifest, which lets it keep what raises no doubt."""
    text = setup.folder.manifest.read_text()
    setup.folder.manifest.write_text(text.replace("approval: review", "approval: auto"))
    changed = open_campaign(setup.workspace, setup.id)
    assert changed.manifest.approval == "auto"
    return changed


def test_rejected_candidate_is_measured_again_and_asked_about_again(
        rejected: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    [candidate] = campaigns.candidates(rejected)
    name, workspace = candidate.id[:12], rejected.workspace
    hint = f"kopt submit --from {name} measures it again, and you are asked again"
    code, _, err = command("approve", name, workspace=workspace)
    assert code == 1 and f"candidate {name} was rejected by " in err and hint in err
    assert f"kopt submit --from {name} measures it again" in \
        " ".join(command("show", name, workspace=workspace)[1].split())
    code, out, err = command("submit", "--from", name, workspace=workspace)
    assert code == 0 and f"submitted to {rejected.id}" in out, err
    campaigns.until(lambda: host.owner(workspace, rejected.id) is None)
    [candidate] = campaigns.candidates(rejected)
    assert candidate.state == "waiting"
    with campaigns.reading(rejected) as reader:
        kinds = [row.kind for row in reader.decisions(rejected.id, candidate=candidate.id)]
        purposes = [row.purpose for row in reader.verdicts(rejected.id, candidate=candidate.id)]
    assert kinds == ["ask", "reject", "ask"] and purposes == ["again-2", "verify"]
    assert command("approve", name, workspace=workspace)[0] == 0
    campaigns.until(lambda: host.owner(workspace, rejected.id) is None)
    assert campaigns.consistent(rejected)


def test_gain_that_a_person_rejected_is_never_kept_without_asking(
        rejected: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = without_review(rejected)
    instant_verdicts.install(monkeypatch)
    campaigns.hand_in(changed)
    assert campaigns.run(changed, decide_only=True).error is None
    [candidate] = campaigns.candidates(changed)
    assert candidate.state == "waiting"
    assert candidate.reason.endswith("a person has rejected it before")


@pytest.mark.parametrize("is_source", [False, True])
def test_submission_that_repeats_a_rejected_candidate_is_refused(
        is_source: bool, rejected: Setup, tmp_path: Path) -> None:
    [candidate] = campaigns.candidates(rejected)
    given = tmp_path / ("given.c" if is_source else "given.patch")
    given.write_bytes(campaigns.FASTER.encode() if is_source else campaigns.patch(rejected))
    code, out, err = command("submit", str(given), workspace=rejected.workspace)
    assert (code, out) == (1, "")
    assert f"this is the same change as candidate {candidate.id[:12]}, which was rejected by" in err
    assert f"kopt submit --from {candidate.id[:12]} measures it again" in err
    assert not list(rejected.folder.inbox.glob("*.*"))
    folder = tmp_path / "several"
    folder.mkdir()
    (folder / "a.patch").write_bytes(campaigns.patch(rejected))
    other = campaigns.FASTER.replace("times that", "how often")
    (folder / "b.patch").write_bytes(campaigns.patch(rejected, other))
    code, _, err = command("submit", "--from", str(folder), workspace=rejected.workspace)
    assert code == 0 and "a is left out: this is the same change as" in err
    campaigns.until(lambda: host.owner(rejected.workspace, rejected.id) is None)


def test_rejected_change_on_a_newer_best_is_asked_about_again(
        rejected: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(setup: Setup, tree: str) -> float:
        forward = b"FORWARD 2" in setup.repo.read(tree, "scale.c")
        return instant_verdicts.passes(setup, tree) / (2 if forward else 1)

    changed = without_review(rejected)
    instant_verdicts.install(monkeypatch, cost)
    campaigns.hand_in(changed, campaigns.KERNEL.replace("FORWARD 1", "FORWARD 2"), "other")
    assert campaigns.run(changed, decide_only=True).error is None
    assert [row.state for row in campaigns.candidates(changed)] == ["closed", "kept"]
    campaigns.hand_in(changed, campaigns.FASTER.replace("FORWARD 1", "FORWARD 2"), "again")
    assert campaigns.run(changed, decide_only=True).error is None
    [*_, again] = campaigns.candidates(changed)
    assert again.state == "waiting" and again.reason.endswith("a person has rejected it before")
