"""Approve, reject, pause, stop and resume from other processes, during a run and after its end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal.records import Candidate, Control
from engine.journal.write import Writer, request
from engine.run import host
from tests.support.engines import campaigns, instant_verdicts
from tests.support.json_schema import answer_faults
from tests.support.paths import ROOT


def answer(setup: Setup, number: int, limit_s: float = 90.0) -> str:
    """Wait for the engine's answer to a control."""
    def outcome() -> str:
        with campaigns.reading(setup) as reader:
            return next(c.outcome for c in reader.controls(setup.id) if c.id == number)

    return campaigns.until(outcome, limit_s, f"an answer to control {number}")


def ask(setup: Setup, verb: str, candidate: str = "", **expected: object) -> str:
    """Send a request through the journal, as a dashboard does, and return the answer."""
    number = request(setup.workspace, setup.id, verb, by="ann@test",  # type: ignore[arg-type]
                     candidate=candidate, **expected)  # type: ignore[arg-type]
    return answer(setup, number)


def wait_for_waiting(setup: Setup, count: int = 1) -> list[Candidate]:
    def found() -> list[Candidate]:
        there = campaigns.candidates(setup, "waiting")
        return there if len(there) >= count else []

    try:
        return campaigns.until(found)
    except AssertionError:
        states = [(c.state, c.reason) for c in campaigns.candidates(setup)]
        raise AssertionError(f"{count} waiting: {states}, {campaigns.slots(setup)}") from None


def paused(setup: Setup) -> bool:
    return campaigns.campaign(setup).state == "paused"


def test_reviewed_candidate_is_decided_while_engine_runs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = campaigns.create_with_patch(tmp_path, approval="review", max_iterations=3)
    with instant_verdicts.held(monkeypatch):
        engine = campaigns.start(setup)
        campaigns.until(lambda: campaigns.slots(setup))
        ask(setup, "pause")
    try:
        candidate = wait_for_waiting(setup)[0]
        campaigns.until(lambda: paused(setup))
        assert ask(setup, "approve", candidate.id, expected_base=candidate.base_commit) == "kept"
        assert ask(setup, "reject", candidate.id).startswith("refused: candidate")
        assert ask(setup, "approve", "nobody") == "refused: no candidate 'nobody'"
        assert paused(setup)
        assert campaigns.consistent(setup)
        assert ask(setup, "stop") == "stopping"
    finally:
        engine.stop()
        engine.join(90)
    state = campaigns.campaign(setup)
    assert (state.state, state.reason) == ("stopped", "stopped by ann@test")
    assert state.speedup is not None
    assert "Stop Summary" in setup.folder.performance.read_text()


def test_clock_that_was_set_back_stops_nobody_from_stopping_a_campaign(tmp_path: Path) -> None:
    """`kopt stop` was refused: the engine that it was sent to had ended."""
    setup = campaigns.create_with_patch(tmp_path, max_iterations=9)
    engine = campaigns.start(setup)
    try:
        campaigns.until(lambda: campaigns.slots(setup))
        with contextlib.closing(Writer(setup.workspace)) as writer, writer.transaction():
            number = writer.add(Control(id=0, campaign=setup.id, verb="stop", candidate="",
                                        expected_base="", expected_verdict=None,
                                        by="ann@test", at=1.0), numbered="id")
        assert answer(setup, number) == "stopping"
    finally:
        engine.stop()
        engine.join(90)
    assert campaigns.campaign(setup).reason == "stopped by ann@test"


def test_second_stop_is_answered_while_the_engine_ends(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stayed unanswered, and every screen said that `kopt resume` starts an engine for it."""
    setup = campaigns.create_with_patch(tmp_path, max_iterations=9)
    with instant_verdicts.held(monkeypatch):
        engine = campaigns.start(setup)
        campaigns.until(lambda: campaigns.slots(setup))
        assert ask(setup, "stop") == "stopping"
        numbers = [request(setup.workspace, setup.id, verb, by="ann@test")
                   for verb in ("stop", "pause")]
    engine.join(90)
    assert not engine.is_alive()
    assert [answer(setup, number, 1.0) for number in numbers] in (
        ["stopping", "refused: the campaign is stopped"],
        ["stopping", "paused as soon as the round ends"])


def test_flagged_candidate_waits_and_can_be_rejected(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)
    setup = campaigns.create_with_patch(tmp_path, approval="flagged")
    campaigns.run(setup)
    assert campaigns.campaign(setup).state == "waiting"
    candidate = wait_for_waiting(setup)[0]
    assert "more than 2x" in candidate.reason
    code, out, err = campaigns.command(
        "reject", candidate.id[:8], "--wait", "90", workspace=setup.workspace)
    assert (code, err) == (0, "") and "rejected" in out
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
    assert campaigns.candidates(setup, "kept") == []
    assert campaigns.campaign(setup).best_commit == setup.repo.base


def in_a_terminal(argv: list[str]) -> tuple[int, int]:
    """Start a command as leader of a terminal's session; return its pid and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execvpe(argv[0], argv, {
                **os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"})
        finally:
            os._exit(127)
    return pid, terminal


@pytest.mark.slow
def test_run_survives_its_terminal_and_can_be_controlled(tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", pool={"slots": 1, "backends": ["inbox"]})
    workspace = tmp_path / "w"
    pid, terminal = in_a_terminal([sys.executable, "-m", "kopt_tui.main", "--workspace",
                                   str(workspace), "run", str(manifest), "--wait"])
    output = b""
    while b"kopt attach" not in output:
        output += os.read(terminal, 4096)
    from engine.campaign.setup import open_campaign

    name = re.search(rb"(\S+) runs in process (\d+)", output)
    assert name is not None, output
    setup = open_campaign(workspace, name[1].decode())
    os.kill(pid, signal.SIGHUP)
    os.close(terminal)
    os.waitpid(pid, 0)
    time.sleep(0.3)  # long enough for the hang-up signal to arrive anywhere
    assert host.owner(workspace, setup.id) == int(name[2])

    code, out, err = campaigns.command("run", setup.id, workspace=workspace)
    assert code == 1 and out == ""
    assert err.count("\n") == 1 and f"is already running in process {int(name[2])}" in err

    assert campaigns.command("pause", workspace=workspace)[0] == 0
    campaigns.until(lambda: paused(setup))
    campaigns.hand_in(setup)
    assert campaigns.command("resume", workspace=workspace)[0] == 0
    campaigns.until(lambda: not paused(setup))

    os.kill(int(name[2]), signal.SIGKILL)
    campaigns.until(lambda: host.owner(workspace, setup.id) is None)
    campaigns.until(lambda: campaigns.processes(workspace) == [], 30.0)
    before = campaigns.events(setup)
    code, out, err = campaigns.command("run", setup.id, "--wait", "--json", workspace=workspace)
    assert code == 0 and answer_faults(["run"], done := json.loads(out)) == [], (out, err)
    assert done["campaign"]["state"] == "finished" and done["pid"] != int(name[2])
    _, out, _ = campaigns.command("events", "-n", "0", workspace=workspace)
    assert "taken over from process" in out
    assert campaigns.events(setup)[:len(before)] == before
    assert len(campaigns.consistent(setup)) == 1


@pytest.mark.slow  # a whole campaign with hosts of its own
def test_stop_ends_in_order_and_resume_continues(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, pool={"slots": 1, "backends": ["inbox"]})
    campaigns.hand_in(setup, campaigns.KERNEL + "// no gain\n")
    host.spawn(setup.workspace, setup.id)
    campaigns.until(lambda: campaigns.slots(setup))
    code, out, err = campaigns.command("stop", setup.id, workspace=setup.workspace)
    assert code == 0 and "stopping" in out, err
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
    assert campaigns.campaign(setup).state == "stopped"
    campaigns.until(lambda: campaigns.processes(setup.workspace) == [], 30.0)
    assert "reason: stopped by" in setup.folder.performance.read_text()
    # an unanswered stop does not end the next engine
    number = request(setup.workspace, setup.id, "stop", by="ann@test")
    code, out, err = campaigns.command("resume", setup.id, workspace=setup.workspace)
    assert code == 0 and "resumed" in out, (out, err)
    assert answer(setup, number).startswith("refused: the engine that it was sent to")
    campaigns.until(lambda: campaigns.campaign(setup).state == "finished")
    assert campaigns.consistent(setup) == []
