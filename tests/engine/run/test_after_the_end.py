"""An ended campaign accepts raised limits, continues, and judges what people hand in."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from engine.campaign.setup import Setup, open_campaign
from engine.journal.read import Reader
from engine.journal.write import request
from engine.manifest import load
from engine.run import host
from engine.run.engine import Engine
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.campaigns import command

INBOX = {"slots": 1, "workers": 1, "backends": ["inbox"]}
FIRST, LATE = (campaigns.KERNEL.replace("times that", words) for words in ("how often", "count of"))
"""Kernels that compile to the same code, so that a verdict takes no time."""


def with_patch(root: Path, rounds: int) -> Setup:
    setup = campaigns.create(root, pool=INBOX, max_iterations=rounds)
    campaigns.hand_in(setup, FIRST)
    return setup


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make verdicts of engines in this process instant; host processes measure."""
    instant_verdicts.install(monkeypatch)


@pytest.fixture
def finished(tmp_path: Path, instant: None) -> Setup:
    """Return a campaign that has judged a submitted patch and ended at its limit of rounds."""
    setup = with_patch(tmp_path, 1)
    assert campaigns.run(setup).error is None
    assert campaigns.campaign(setup).reason == "max_iterations: 1 round done"
    return setup


def events(setup: Setup, kind: str) -> list[dict[str, object]]:
    with campaigns.reading(setup) as reader:
        return [json.loads(event.payload) for event in reader.events_of(setup.id, kind)]


@pytest.mark.slow
def test_campaign_continues_after_its_limit_is_raised(finished: Setup) -> None:
    workspace = finished.workspace
    code, out, err = command("resume", workspace=workspace)
    assert (code, err) == (1, "")
    assert "the campaign has ended: max_iterations: 1 round done; kopt set max_iterations=VALUE " \
        "changes that limit" in " ".join(out.split())

    code, out, err = command("set", finished.id, "max_iterations=2", "budget.wall_s=9000",
                             workspace=workspace)
    changed = "max_iterations 1 → 2, budget.wall_s none → 9000"
    assert (code, out) == (0, f"set {finished.id}: changed {changed}\n"), err
    assert campaigns.campaign(finished).state == "finished"
    assert campaigns.campaign(finished).rounds_max == 3
    [event] = events(finished, "limits")
    assert event["message"] == changed and "@" in str(event["by"])
    manifest = load.load(finished.folder.manifest)
    assert (manifest.max_iterations, manifest.budget.wall_s) == (2, 9000.0)
    assert manifest.decision.looks == finished.planned_looks

    (finished.folder.inbox / "late.patch").write_bytes(campaigns.patch(finished, LATE))
    code, out, err = command("resume", workspace=workspace)
    assert (code, out) == (0, f"resume {finished.id}: resumed\n"), err
    campaigns.until(lambda: campaigns.campaign(finished).reason == "max_iterations: 2 rounds done")
    assert f"Limits changed by {event['by']}" in finished.folder.log.read_text()
    assert changed in finished.folder.log.read_text()


def test_limit_set_during_a_run_holds_at_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = with_patch(tmp_path, 9)
    with instant_verdicts.held(monkeypatch):
        engine = campaigns.start(setup)
        number = request(setup.workspace, setup.id, "set", by="ann@test",
                         limits={"max_iterations": "1"})
        bad = request(setup.workspace, setup.id, "set", by="ann@test", limits={"wall_s": "-1"})
    engine.join(90)
    with campaigns.reading(setup) as reader:
        answers = {control.id: control.outcome for control in reader.controls(setup.id)}
    assert answers[number] == "changed max_iterations 9 → 1"
    assert answers[bad].startswith("refused: wall_s: '-1' is not a possible limit")
    assert campaigns.campaign(setup).reason == "max_iterations: 1 round done"


def test_limit_that_a_killed_engine_wrote_reaches_the_journal(finished: Setup) -> None:
    manifest = load.load(finished.folder.manifest)
    finished.folder.manifest.write_text(load.dump(msgspec.structs.replace(
        manifest, max_iterations=2)))
    number = request(finished.workspace, finished.id, "set", by="ann@test",
                     limits={"max_iterations": "2"})
    assert campaigns.run(finished, decide_only=True).error is None
    with campaigns.reading(finished) as reader:
        [answer] = [each.outcome for each in reader.controls(finished.id) if each.id == number]
    assert (answer, campaigns.campaign(finished).rounds_max) == ("changed max_iterations", 3)


def test_patch_that_cannot_leave_the_inbox_is_judged_once(finished: Setup) -> None:
    shutil.rmtree(finished.folder.inbox / "taken")
    (finished.folder.inbox / "taken").touch()
    campaigns.hand_in(finished, LATE, "late")
    assert campaigns.run(finished, decide_only=True, limit_s=60).error is None
    with campaigns.reading(finished) as reader:
        assert max(round.n for round in reader.rounds(finished.id)) <= 4
    assert any("a patch stays in the inbox" in str(event["message"])
               for event in events(finished, "warning"))


def test_patch_for_an_ended_campaign_is_judged_by_a_host_that_then_ends(
        finished: Setup, tmp_path: Path) -> None:
    (tmp_path / "late.patch").write_bytes(campaigns.patch(finished, LATE))
    code, out, err = command("submit", str(tmp_path / "late.patch"),
                             workspace=finished.workspace)
    assert code == 0 and out.endswith("; a background process judges it now\n"), err
    campaigns.until(lambda: host.owner(finished.workspace, finished.id) is None)
    assert [c.state for c in campaigns.candidates(finished) if c.round == 3] == ["closed"]
    assert not list(finished.folder.inbox.glob("*.patch"))
    row = campaigns.campaign(finished)
    assert (row.state, row.reason) == ("finished", "max_iterations: 1 round done")


@pytest.mark.slow
def test_status_and_run_agree_on_a_finished_campaign_that_judges_a_patch(
        finished: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    campaigns.hand_in(finished, LATE, "late")
    with instant_verdicts.held(monkeypatch):
        host_of_patch = Engine(finished.workspace, finished.id, decide_only=True)
        host_of_patch.start()
        campaigns.until(lambda: campaigns.campaign(finished).phase)
        status = command("status", workspace=finished.workspace)[1]
        assert f"{finished.id}  ► judging" in status
        assert "\n  after its end: " in status
        manifest = str(finished.workspace.parent / "p" / "manifest.yaml")
        code, out, err = command("run", manifest, workspace=finished.workspace)
        assert (code, out) == (1, "")
        assert f"{finished.id} is still judging, after its end: " in err
    host_of_patch.join(90)
    assert "✓ finished" in command("status", workspace=finished.workspace)[1]


def test_patch_that_arrives_during_the_last_round_is_judged(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = with_patch(tmp_path, 1)
    with instant_verdicts.held(monkeypatch):
        engine = campaigns.start(setup)
        campaigns.until(lambda: campaigns.slots(setup))
        campaigns.hand_in(setup, LATE, "late")
    engine.join(90)
    assert not engine.is_alive() and not list(setup.folder.inbox.glob("*.patch"))
    assert campaigns.campaign(setup).state == "finished"


@pytest.mark.slow
def test_second_run_of_a_manifest_names_the_running_campaign(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup, manifest = campaigns.create(tmp_path, pool=INBOX), str(tmp_path / "p" / "manifest.yaml")
    with instant_verdicts.held(monkeypatch, baseline=True):
        engine = campaigns.start(setup)
        code, out, err = command("run", manifest, workspace=setup.workspace)
        assert (code, out) == (1, "")
        assert err == (f"kopt: {setup.id} is already running on this manifest (kopt attach "
                       f"{setup.id} shows it, --new starts another campaign)\n")
        assert [path.name for path in setup.workspace.glob("scale_*")] == [setup.id]
        code, out, err = command("run", manifest, "--new", "--json", workspace=setup.workspace)
        assert code == 0 and json.loads(out)["campaign"]["id"] == f"{setup.id}-2", err
        assert command("stop", f"{setup.id}-2", workspace=setup.workspace)[0] == 0
    engine.join(90)
    campaigns.until(lambda: host.owner(setup.workspace, f"{setup.id}-2") is None)


@pytest.mark.slow
def test_run_beside_an_interrupted_campaign_says_how_to_continue_the_old_one(
        tmp_path: Path) -> None:
    setup, manifest = campaigns.create(tmp_path, pool=INBOX), str(tmp_path / "p" / "manifest.yaml")
    killed = host.spawn(setup.workspace, setup.id)
    campaigns.until(lambda: campaigns.campaign(setup).state == "running")
    os.kill(killed, signal.SIGKILL)
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
    code, _, err = command("run", manifest, workspace=setup.workspace)
    assert code == 0 and f"and kopt resume {setup.id} continues it" in err
    assert command("stop", f"{setup.id}-2", workspace=setup.workspace)[0] == 0
    campaigns.until(lambda: host.owner(setup.workspace, f"{setup.id}-2") is None)


def test_only_one_of_two_simultaneous_runs_of_a_manifest_starts(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", pool=INBOX)
    workspace = tmp_path / "w"
    runs = [subprocess.Popen([sys.executable, "-m", "kopt_tui.main", "run", str(manifest),
                              "--workspace", str(workspace)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(*run.communicate(timeout=60), run.returncode) for run in runs]
    with closing(Reader(workspace)) as reader:
        [started] = reader.campaigns()
    assert command("stop", started.id, workspace=workspace)[0] == 0
    assert sorted(code for *_, code in ended) == [0, 1], ended
    [refusal] = [err for _, err, code in ended if code]
    assert f"{started.id} is already running on this manifest" in refusal
    campaigns.until(lambda: host.owner(workspace, started.id) is None)


@pytest.mark.slow
def test_demo_continues_after_its_terminal_is_gone(tmp_path: Path) -> None:
    from tests.engine.run.test_controls import in_a_terminal

    pid, terminal = in_a_terminal([sys.executable, "-m", "kopt_tui.main", "demo", "--plain",
                                   "--example", "rmsnorm_c", "--workspace", str(tmp_path)])
    output = b""
    while not (found := re.search(rb"(\S+) runs in process (\d+)", output)):
        output += os.read(terminal, 4096)
    os.kill(pid, signal.SIGHUP)
    os.close(terminal)
    os.waitpid(pid, 0)
    setup = open_campaign(tmp_path, found[1].decode())
    campaigns.until(lambda: campaigns.campaign(setup).state == "running")
    assert host.owner(tmp_path, setup.id) == int(found[2])
    assert command("stop", workspace=tmp_path)[0] == 0
    campaigns.until(lambda: host.owner(tmp_path, setup.id) is None)


@pytest.mark.parametrize(("left_s", "state"), [(119, "finished"), (29, "stopped")])
def test_campaign_ends_in_order_before_its_slurm_job(
        left_s: int, state: str, tmp_path: Path, instant: None,
        monkeypatch: pytest.MonkeyPatch) -> None:
    end = time.time() + left_s
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(end)))
    setup = with_patch(tmp_path, 9)
    assert campaigns.run(setup).error is None
    row = campaigns.campaign(setup)
    assert (row.state, row.reason) == (state, time.strftime(
        "the Slurm job ends at %H:%M; kopt resume in another job continues", time.localtime(end)))
    assert "the Slurm job ends at" in setup.folder.performance.read_text()
    monkeypatch.delenv("SLURM_JOB_ID")
    campaigns.run(setup)
    assert campaigns.campaign(setup).reason.startswith("nothing left to try")


def test_resume_beside_a_host_that_only_decides_requests_is_answered(finished: Setup) -> None:
    """The host of a late approval may measure for a minute before it ends."""
    for verb in ("set", "resume"):
        request(finished.workspace, finished.id, verb, by="ann",  # type: ignore[arg-type]
                limits={"max_iterations": "2"} if verb == "set" else None)
    campaigns.run(finished, decide_only=True)
    with campaigns.reading(finished) as reader:
        changed, resumed = reader.controls(finished.id)
    assert changed.outcome.startswith("changed ")
    assert resumed.outcome.startswith("refused: the campaign has ended: nothing left to try")
    assert "kopt submit PATCH" in resumed.outcome and "--new" in resumed.outcome
