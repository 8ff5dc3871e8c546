"""A near gain is measured again when a person asks, and once when a worker proposes it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.run import host
from engine.run.engine import Engine
from engine.verify.verifier import VerdictRequest, Verifier
from harness.verdict import Verdict
from tests.support.dashboards.dashboard_pilot import open_app, shown, until
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.campaigns import command

NEAR = "near gain of 3.0%, not sure"


def blur(monkeypatch: pytest.MonkeyPatch, *purposes: str) -> None:
    """Let verdicts of these purposes, by default the first ones, be 3 % faster within the noise."""
    instant_verdicts.install(monkeypatch)
    instant = Verifier._verdict

    def blurred(verifier: Verifier, job: VerdictRequest) -> Verdict:
        verdict = instant(verifier, job)
        return verdict if job.purpose not in (purposes or ("verify",)) else replace(
            verdict, speedup=1.03, speedup_low=0.99, speedup_high=1.07,
            rows=tuple(replace(row, outcome="tie", log_ratio=0.03, low=-0.01, high=0.07)
                       for row in verdict.rows))

    monkeypatch.setattr(Verifier, "_verdict", blurred)


@pytest.fixture
def near_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Return a finished campaign whose candidate was measured as 3 % faster, within the noise."""
    setup = campaigns.create_with_patch(tmp_path, max_iterations=1)
    with monkeypatch.context() as patched:
        blur(patched)
        assert campaigns.run(setup).error is None
    [candidate] = campaigns.candidates(setup, "closed")
    assert NEAR in candidate.reason
    return setup


def purposes(setup: Setup) -> list[str]:
    [candidate] = campaigns.candidates(setup)
    with campaigns.reading(setup) as reader:
        return [row.purpose for row in reader.verdicts(setup.id, candidate=candidate.id)]


@pytest.mark.slow
def test_person_has_a_near_gain_measured_again(near_gain: Setup) -> None:
    [candidate] = campaigns.candidates(near_gain)
    shown = command("show", candidate.id[:8], workspace=near_gain.workspace)[1]
    assert NEAR in shown and f"kopt submit --from {candidate.id[:12]} measures it again" in shown
    waited = command("run", near_gain.id, "--wait", workspace=near_gain.workspace)[1]
    assert f"near gain of 3.0%; kopt submit --from {candidate.id[:12]} measures it again" in waited
    report = command("report", near_gain.id, workspace=near_gain.workspace)[1]
    assert f"measure {candidate.id[:12]} of round 2 again (" in report
    assert f"near gain of 3.0%): kopt submit --from {candidate.id[:12]}" in report
    code, out, err = command("submit", "--from", candidate.id[:12], workspace=near_gain.workspace)
    assert code == 0 and f"submitted to {near_gain.id}" in out, err
    campaigns.until(lambda: host.owner(near_gain.workspace, near_gain.id) is None)
    [candidate] = campaigns.candidates(near_gain)  # the host has really measured it
    assert candidate.state in ("kept", "waiting") and "near gain" not in candidate.reason
    assert purposes(near_gain) == ["again-2", "verify"]
    with campaigns.reading(near_gain) as reader:
        last, outcome = reader.rounds(near_gain.id)[-1], {"kept": "keep", "waiting": "ask"}
    assert last.n == 3
    assert last.summary == f"no new candidate; of earlier rounds: 1 {outcome[candidate.state]}"
    assert not list(near_gain.folder.inbox.glob("*.patch"))
    code, _, err = command("submit", "--from", candidate.id[:12], workspace=near_gain.workspace)
    assert code == 1 and f"is {candidate.state}: nothing to measure again" in err


@pytest.mark.slow
async def test_key_in_the_dashboard_has_a_near_gain_measured_again(near_gain: Setup) -> None:
    [candidate] = campaigns.candidates(near_gain)
    app = open_app(near_gain.workspace, campaign=near_gain.id)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, "near gain of 3.0%")
        app.open_candidate(near_gain.id, candidate.id)
        await until(pilot, f"m or kopt submit --from {candidate.id[:12]} measures it again")
        await until(pilot, "m measure again  tab pane")  # in the bottom line
        await pilot.press("m")
        await until(pilot, f"{candidate.id[:8]} is submitted: a round measures it")
        await until(pilot, lambda: purposes(near_gain) == ["again-2", "verify"], limit=90)
        await until(pilot, lambda: "measures it again" not in shown(app))
        await pilot.press("m")
        await until(pilot, "only a near gain, or what a person rejected, is measured again")
    campaigns.until(lambda: host.owner(near_gain.workspace, near_gain.id) is None)


def test_near_gain_that_a_worker_proposes_again_is_measured_again_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blur(monkeypatch, "verify", "again-2")
    setup = campaigns.create(tmp_path, max_iterations=4, stop={"no_gain_rounds": 9}, pool={
        "slots": 1, "workers": 1, "backends": ["cli"], "cli": [{
            "name": "again",
            "command": "sh -c \"sed -i 's/PASSES 16/PASSES 15/' scale.c\" {prompt}"}]})
    assert campaigns.run(setup).error is None
    assert purposes(setup) == ["again-2", "verify"]
    stages = {n: next(iter(campaigns.slots(setup, n).values()))[0] for n in (2, 3, 4)}
    assert (stages[3], stages[4]) == ("measured", "repeat"), stages


def test_measurement_that_a_stop_has_cut_short_is_made_by_the_next_engine(
        near_gain: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    campaigns.hand_in(near_gain)
    with instant_verdicts.held(monkeypatch):
        engine = Engine(near_gain.workspace, near_gain.id, decide_only=True)
        engine.start()
        campaigns.until(lambda: "verifying" in [stage for stage, _ in
                                                campaigns.slots(near_gain, 3).values()])
        engine.stop()
        campaigns.until(lambda: not campaigns.campaign(near_gain).phase)
    engine.join(60)
    assert list(near_gain.folder.inbox.glob("*.patch")) and purposes(near_gain) == ["verify"]
    instant_verdicts.install(monkeypatch)
    campaigns.run(near_gain, decide_only=True)
    [candidate] = campaigns.candidates(near_gain)
    assert candidate.state in ("kept", "waiting") and purposes(near_gain) == ["again-2", "verify"]
    assert not list(near_gain.folder.inbox.glob("*.patch"))
