"""Tests what approve, reject, pause, resume, stop and set record and print."""

from __future__ import annotations

import json
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
from tests.support.programs.command_line import (
    NAME,
    answer,
    converse,
    error_text,
    kopt,
    write_campaign,
)

WAITING = "dd44" * 5


@contextmanager
def engine(workspace: Path, outcome: str) -> Iterator[list[Control]]:
    """Hold the campaign's lease as an engine does, and answer every control with `outcome`."""
    answered: list[Control] = []
    ready, ended = threading.Event(), threading.Event()

    def work() -> None:
        writer = Writer(workspace)
        own = lease.acquire(writer, NAME)
        ready.set()
        while not ended.wait(0.02):
            for control in writer.open_controls(NAME):
                writer.finish_control(control.id, outcome)
                answered.append(control)
        lease.release(writer, own)
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
def test_decision_records_the_base_and_verdict_that_the_person_saw(
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
    assert (control.expected_base, control.expected_verdict) == ("c" * 40, newest.id)
    assert "@" in control.by


def test_rejection_records_its_reason(workspace: Path) -> None:
    with engine(workspace, "rejected"):
        done = kopt("reject", "dd44", "--reason", "the rounding changes", workspace=workspace)
    assert (done.returncode, done.stderr) == (0, "")
    reader = Reader(workspace)
    [event] = reader.events_of(NAME, "control.requested")
    reader.close()
    assert json.loads(event.payload)["reason"] == "the rounding changes"
    assert "unrecognized arguments: --reason" in kopt(
        "approve", "dd44", "--reason", "x", workspace=workspace).stderr


def test_refused_approval_has_exit_code_1(workspace: Path) -> None:
    with engine(workspace, "not kept: it was decided meanwhile"):
        done = kopt("approve", "dd44", "--json", workspace=workspace)
    assert done.returncode == 1
    assert '"refused":true' in done.stdout


def test_approval_of_a_kept_candidate_says_so_and_records_no_control(workspace: Path) -> None:
    done = kopt("approve", "aa11", workspace=workspace)
    assert (done.returncode, done.stdout) == (0, "approve aa11aa11aa11: kept already\n")
    reader = Reader(workspace)
    assert reader.controls(NAME) == []
    reader.close()


def test_only_a_waiting_candidate_can_be_decided(workspace: Path) -> None:
    done = kopt("reject", "aa11", workspace=workspace)
    assert done.returncode == 1
    assert "candidate aa11aa11aa11 is kept and does not wait for approval" in error_text(done)
    assert kopt("reject", "zz", workspace=workspace).returncode == 2


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_pause_and_stop_without_a_name_use_the_running_campaign(verb: str, workspace: Path) -> None:
    write_campaign(workspace, "another_c_cpu_20261121", state="finished")
    with engine(workspace, "stopping") as answered:
        value = answer(kopt(verb, "--json", workspace=workspace))
    assert (value["campaign"], value["answered"], value["outcome"]) == (NAME, True, "stopping")
    assert [control.verb for control in answered] == [verb]


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_pause_and_stop_need_a_running_engine(verb: str, workspace: Path) -> None:
    done = kopt(verb, NAME, workspace=workspace)
    assert done.returncode == 1
    assert (
        error_text(done)
        == f"no engine runs {NAME}; it is lost (kopt resume {NAME} continues it)"
    )
    reader = Reader(workspace)
    assert reader.controls(NAME) == []
    reader.close()


def test_resume_refuses_a_running_campaign(workspace: Path) -> None:
    with engine(workspace, "resumed"):
        assert "is already running" in error_text(kopt("resume", NAME, workspace=workspace))


@pytest.mark.parametrize(("words", "message"), [
    (["max_iteration=8"], "max_iteration is not a limit that can be changed (did you mean "
                          "'max_iterations'?)"),
    (["max_iterations=many"], "max_iterations: 'many' is not a possible limit (expected a whole "
                              "number or none)"),
    (["max_iterations=120"], "'120' is not a possible limit (expected a whole number <= 119)"),
    (["consecutive_regressions=none"], "is not a possible limit (expected a whole number)"),
    (["performance_target=fast"], "performance_target: 'fast' states no number"),
    (["target_op=x"], "target_op is not a limit that can be changed"),
    ([NAME], "expected LIMIT=VALUE"), (["a", "b", "wall_s=1"], "expected LIMIT=VALUE")])
def test_limit_that_cannot_be_set_is_refused_in_one_line(
        words: list[str], message: str, workspace: Path) -> None:
    (workspace / NAME / "manifest.yaml").write_text("target_op: rmsnorm\n")
    done = kopt("set", *words, workspace=workspace)
    assert done.returncode == 2 and message in error_text(done)
    reader = Reader(workspace)
    assert reader.controls(NAME) == []
    reader.close()


def test_resume_cancels_a_pause_that_waits_for_the_end_of_the_round(workspace: Path) -> None:
    with engine(workspace, "paused as soon as the round ends"):
        assert kopt("pause", NAME, workspace=workspace).returncode == 0
    with engine(workspace, "resumed") as answered:
        done = kopt("resume", NAME, workspace=workspace)
    assert (done.returncode, done.stdout) == (0, f"resume {NAME}: resumed\n")
    assert [control.verb for control in answered] == ["resume"]


def test_wait_for_an_answer_is_limited(workspace: Path) -> None:
    writer = Writer(workspace)
    own = lease.acquire(writer, NAME)
    started = time.monotonic()
    done = kopt("pause", "--wait", "0.3", workspace=workspace)
    assert time.monotonic() - started < 20
    assert done.returncode == 0 and "has not answered yet" in done.stdout
    assert kopt("pause", "--wait", "nan", workspace=workspace).returncode == 2
    lease.release(writer, own)
    writer.close()


def test_lines_of_an_answer_break_between_words_at_a_terminal(workspace: Path) -> None:
    with engine(workspace, "paused " + "as soon as the round ends " * 4):
        status, screen = converse(["pause", NAME, "--workspace", str(workspace)], {})
    lines = screen.split("\r\n")
    assert status == 0 and len(lines) > 2 and max(map(len, lines)) <= 80, screen
    assert " ".join(line.strip() for line in lines).count("as soon as the round ends") == 4
