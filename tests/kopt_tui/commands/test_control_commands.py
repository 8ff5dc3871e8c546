"""Asking an engine: the command in one process, the engine's answer from another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.journal import lease
from engine.journal.read import Reader
from engine.journal.records import Control
from engine.journal.write import Writer
from tests.support.command_line import NAME, answer, kopt, told, write_campaign

WAITING = "dd44" * 5


@contextmanager
def engine(workspace: Path, outcome: str) -> Iterator[list[Control]]:
    """Own the campaign as an engine does, and give every control this answer."""
    answered: list[Control] = []
    ready, ended = threading.Event(), threading.Event()

    def work() -> None:
        writer = Writer(workspace)
        held = lease.acquire(writer, NAME)
        ready.set()
        while not ended.wait(0.02):
            for control in writer.open_controls(NAME):
                writer.finish_control(control.id, outcome)
                answered.append(control)
        lease.release(writer, held)
        writer.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    try:
        yield answered
    finally:
        ended.set()
        thread.join(30)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_campaign(tmp_path, state="running")
    return tmp_path


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_decision_reaches_the_engine_with_what_the_person_saw(
        verb: str, workspace: Path) -> None:
    with engine(workspace, "kept as cccc") as answered:
        done = kopt(verb, "dd44", workspace=workspace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{verb} {WAITING[:12]}: kept as cccc\n"
    [control] = answered
    reader = Reader(workspace)
    newest = reader.verdicts(NAME, candidate=WAITING)[0]
    reader.close()
    assert (control.verb, control.candidate) == (verb, WAITING)
    assert (control.expected_base, control.expected_verdict) == ("b0", newest.id)
    assert "@" in control.by


def test_a_refusal_is_exit_1(workspace: Path) -> None:
    with engine(workspace, "not kept: it was decided meanwhile"):
        done = kopt("approve", "dd44", "--json", workspace=workspace)
    assert done.returncode == 1
    assert '"refused":true' in done.stdout


def test_only_what_waits_can_be_decided(workspace: Path) -> None:
    done = kopt("approve", "aa11", workspace=workspace)
    assert done.returncode == 1
    assert "candidate aa11aa11aa11 is kept, it waits for nobody" in told(done)
    assert kopt("reject", "zz", workspace=workspace).returncode == 2


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_pause_and_stop_mean_the_campaign_that_runs(verb: str, workspace: Path) -> None:
    write_campaign(workspace, "another_c_cpu_20261121", state="finished")
    with engine(workspace, "stopping") as answered:
        value = answer(kopt(verb, "--json", workspace=workspace))
    assert (value["campaign"], value["answered"], value["outcome"]) == (NAME, True, "stopping")
    assert [control.verb for control in answered] == [verb]


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_nothing_is_asked_of_an_engine_that_is_not_there(verb: str, workspace: Path) -> None:
    done = kopt(verb, NAME, workspace=workspace)
    assert done.returncode == 1
    assert told(done) == f"no engine runs {NAME}, it is running (kopt resume goes on with it)"
    reader = Reader(workspace)
    assert reader.controls(NAME) == []
    reader.close()


def test_resume_refuses_what_runs_or_has_ended(workspace: Path) -> None:
    write_campaign(workspace, "done_c_cpu_20261120")
    with engine(workspace, "resumed"):
        assert "runs already" in told(kopt("resume", NAME, workspace=workspace))
    done = kopt("resume", "done", workspace=workspace)
    assert done.returncode == 1 and "nothing to go on with" in told(done)


def test_an_engine_that_does_not_answer_is_waited_for_only_so_long(workspace: Path) -> None:
    writer = Writer(workspace)
    held = lease.acquire(writer, NAME)
    began = time.monotonic()
    done = kopt("pause", "--wait", "0.3", workspace=workspace)
    assert time.monotonic() - began < 20
    assert done.returncode == 0 and "has not answered yet" in done.stdout
    lease.release(writer, held)
    writer.close()
