"""Tests a campaign whose engine is gone while a process only answers a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.journal import lease
from engine.journal.write import Writer
from engine.run import host
from engine.run.engine import Engine
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.campaigns import command

LATE = campaigns.KERNEL.replace("times that", "count of")


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Return a campaign whose engine is gone: it has judged a patch, and a round is left."""
    setup = campaigns.create_with_patch(tmp_path, max_iterations=1)
    with monkeypatch.context() as patched:
        instant_verdicts.install(patched)
        assert campaigns.run(setup).error is None
    with closing(Writer(setup.workspace)) as writer:
        held = lease.acquire(writer, setup.id)
        writer.set_campaign(setup.id, kind="campaign.state", payload={}, state="running",
                            phase="OPTIMIZE: round 2", reason="")
        lease.release(writer, held)
    assert f"{setup.id}  ✗ lost" in command("status", workspace=setup.workspace)[1]
    return setup


@contextmanager
def answering(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a process at work on a submitted patch until the `with` block ends."""
    campaigns.hand_in(setup, LATE, "late")
    with instant_verdicts.held(monkeypatch):
        engine = Engine(setup.workspace, setup.id, decide_only=True)
        engine.start()
        campaigns.until(lambda: campaigns.slots(setup, 3))
        yield
    engine.join(90)


def test_status_says_that_a_process_only_answers(
        lost: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lost, monkeypatch):
        words = "its engine is gone, and a process only answers a request; " \
            f"kopt resume {lost.id} continues it after that"
        out = command("status", workspace=lost.workspace)[1]
        assert f"{lost.id}  ► judging" in out and words in " ".join(out.split())
        assert words in " ".join(command("show", lost.id, workspace=lost.workspace)[1].split())
        out = command("resume", "--wait", "0", workspace=lost.workspace)[1]
        assert "a process answers another request first, and the campaign continues after that" in \
            " ".join(out.split())
    campaigns.until(lambda: host.owner(lost.workspace, lost.id) is None)
    assert campaigns.campaign(lost).state == "finished"  # the same process has continued it


@pytest.mark.parametrize("by_name", [False, True])
def test_run_waits_for_the_process_and_continues_the_campaign(
        by_name: bool, lost: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lost.id if by_name else str(lost.workspace.parent / "p" / "manifest.yaml")
    with answering(lost, monkeypatch):
        started = campaigns.kopt("run", name, workspace=lost.workspace)
        assert started.stderr is not None
        assert started.stderr.readline() == (
            f"kopt: a process answers a request to {lost.id} (seconds to a minute); the campaign "
            "continues after that\n")
        assert started.poll() is None
    code, out, err = campaigns.ended(started)
    assert code == 0 and out.startswith(f"{lost.id} runs in process "), err
    campaigns.until(lambda: host.owner(lost.workspace, lost.id) is None)
    assert campaigns.campaign(lost).state == "finished"


def test_resume_says_that_it_starts_an_engine(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path)
    code, out, err = command("resume", setup.id, "--wait", "0", workspace=setup.workspace)
    assert code == 0 and out.startswith(
        f"resume {setup.id}: recorded; an engine is being started, and answers when it has "
        "finished this: "), (out, err)
    assert command("stop", setup.id, workspace=setup.workspace)[0] == 0
    campaigns.until(lambda: host.owner(setup.workspace, setup.id) is None)
