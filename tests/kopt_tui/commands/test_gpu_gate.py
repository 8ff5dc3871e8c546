"""`kopt evaluate` and `kopt loop` wait for an idle card, as a campaign does."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.verify import harness_client
from harness.devices import inventory
from harness.devices.device import Device, DeviceProcess, DeviceState, Listing
from harness.devices.monitoring import tenants
from harness.devices.monitoring.interference import COMPANY, STRANGER
from harness.requests import EvaluateRequest, LoopRequest, Progress
from harness.search.trials.trials import LoopResult
from harness.verdict import Evidence, Verdict
from kopt_tui.cli import stage_line
from kopt_tui.cli.gpu_gate import company_notes
from kopt_tui.main import main
from tests.support.engines import campaigns

CARDS = tuple(Device(id=f"cuda:{index}", kind="nvidia", name="NVIDIA H200", index=index,
                     uuid=f"GPU-verbs-{os.getpid()}-{index}", memory_bytes=141 << 30, arch="sm_90")
              for index in range(2))
GPU = {"device": "auto", "retry_s": 0.05, "limit_s": 0.3}
Machine = Callable[..., list[str]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Simulate two cards; those named in `busy` are busy for `readings` readings.

    The returned function returns a list that collects the devices used for requests.
    """
    monkeypatch.setattr("engine.verify.gate.SETTLE_S", 0.0)
    monkeypatch.setattr("harness.devices.inventory._known", {})
    monkeypatch.setitem(inventory._LISTERS, "nvidia", lambda: Listing(CARDS))
    used_devices: list[str] = []

    def evaluate(request: EvaluateRequest, **_: object) -> Verdict:
        used_devices.append(request.device)
        assert all(tenants.is_in_use(card.lock_name) for card in CARDS if card.id == request.device)
        evidence = (Evidence(kind=COMPANY, detail="process 9 was there"),)
        return Verdict(valid=True, correct=True, evidence=evidence[:len(used_devices) > 1])

    def loop(request: LoopRequest, **_: object) -> LoopResult:
        used_devices.append(request.device)
        return LoopResult(best={}, source="", log_ratio=None, trials=(), space_size=2)

    monkeypatch.setattr(harness_client, "evaluate", evaluate)
    monkeypatch.setattr(harness_client, "loop", loop)

    def make(*busy: str, readings: float = float("inf")) -> list[str]:
        left = readings

        def read(devices: list[Device]) -> list[DeviceState]:
            nonlocal left
            left -= 1
            there = (DeviceProcess(pid=41, name="train"),)
            return [DeviceState(device=device.id, at=0.0, utilization_pct=0.0, memory_used=0,
                                memory_total=141 << 30,
                                processes=there if device.id in busy and left >= 0 else ())
                    for device in devices]

        monkeypatch.setitem(inventory._READERS, "nvidia", read)
        return used_devices

    return make


def manifest(root: Path, **gpu: Any) -> Path:
    return campaigns.project(root / "p", gpu={**GPU, **gpu})


@pytest.mark.parametrize("verb", ["evaluate", "loop"])
def test_no_idle_card_is_one_line_without_a_run(verb: str, machine: Machine, tmp_path: Path,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    """The last line on stderr is the error."""
    used_devices = machine("cuda:0", "cuda:1")
    path = manifest(tmp_path, device="cuda:0")
    code = main([verb, str(path), "--workspace", str(tmp_path / "w")])
    printed = capsys.readouterr()
    assert (code, used_devices, printed.out) == (3, [], "")
    assert "cuda:0 not used: in use by process 41 (train)" in printed.err
    last = printed.err.splitlines()[-1]
    assert "no idle GPU for" in last and "process 41 (train)" in last and "resume" not in last


def test_stdout_stays_json_during_a_wait(machine: Machine, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    used_devices = machine("cuda:0", readings=12)
    path = manifest(tmp_path, device="cuda:0", limit_s=60.0)
    assert main(["evaluate", str(path), "--json"]) == 0
    printed = capsys.readouterr()
    assert used_devices == ["cuda:0"] and json.loads(printed.out)["correct"]
    assert [line.split(";")[0] for line in printed.err.splitlines()] == [
        "kopt: cuda:0 not used: in use by process 41 (train)",
        "kopt: cuda:0 idle again: back in the pool"]


def test_idle_card_is_used_and_a_named_one_waited_for(
        machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    used_devices = machine("cuda:0", readings=12)
    both = manifest(tmp_path, device="cuda:0,cuda:1", limit_s=60.0)
    assert main(["evaluate", str(both), "--json"]) == 0
    assert used_devices == ["cuda:1"]
    (tmp_path / "q").mkdir()
    path = manifest(tmp_path / "q", device="cuda:0", limit_s=60.0)
    assert main(["evaluate", str(path), "--json"]) == 0
    assert used_devices == ["cuda:1", "cuda:0"]
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1] or "null") is not None


def test_verdict_notes_a_foreign_process(machine: Machine, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    machine()
    path = manifest(tmp_path, device="cuda:0")
    for expected in (False, True):
        assert main(["evaluate", str(path), "--json"]) == 0
        notes = json.loads(capsys.readouterr().out)["notes"]
        assert any("process 9 was there" in note for note in notes) == expected


def test_note_on_another_process_states_the_remedy() -> None:
    company = Evidence(kind=COMPANY, detail="process 9 was there")
    stranger = Evidence(kind=STRANGER, detail="timed beside process 9, of no kopt")
    assert company_notes(Verdict(valid=True, correct=True, evidence=(company, stranger))) == [
        "timed beside process 9, of no kopt: repeat the verdict when it has ended"]
    assert company_notes(Verdict(valid=True, correct=True)) == []


def test_loop_and_its_verdict_each_wait_for_a_card(machine: Machine, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """As cuda:1 stays busy, both use cuda:0."""
    used_devices = machine("cuda:1", readings=1e9)
    path = manifest(tmp_path, device="cuda:1,cuda:0")
    assert main(["loop", str(path), "--json", "--workspace", str(tmp_path / "w")]) == 0
    assert used_devices == ["cuda:0", "cuda:0"]
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert verdict["correct"] and verdict["notes"] == ["process 9 was there"]


@pytest.mark.parametrize("verb", ["evaluate", "loop"])
def test_ctrl_c_ends_the_wait(verb: str, machine: Machine, tmp_path: Path,
                              capsys: pytest.CaptureFixture[str]) -> None:
    used_devices = machine("cuda:0")
    path = manifest(tmp_path, device="cuda:0", retry_s=600.0, limit_s=3600.0)
    before, began = signal.getsignal(signal.SIGINT), time.monotonic()
    ended = threading.Event()

    def interrupt() -> None:
        while not ended.wait(1.0):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        code = main([verb, str(path), "--workspace", str(tmp_path / "w")])
    finally:
        ended.set()
        thread.join()
    assert (code, used_devices) == (130, []) and time.monotonic() - began < 60
    assert signal.getsignal(signal.SIGINT) == before
    assert "cuda:0 not used" in capsys.readouterr().err


def test_cpu_needs_no_wait(machine: Machine, tmp_path: Path,
                           monkeypatch: pytest.MonkeyPatch,
                           capsys: pytest.CaptureFixture[str]) -> None:
    used_devices = machine("cuda:0", "cuda:1")
    monkeypatch.setattr("engine.verify.gate.look", lambda *_, **__: pytest.fail("was looked at"))
    assert main(["evaluate", str(manifest(tmp_path, device="cpu")), "--json"]) == 0
    assert used_devices == ["cpu"] and capsys.readouterr().err == ""


def test_stage_that_takes_long_shows_its_seconds_at_a_terminal(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stage_line, "SLOW_S", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown, stage = "", "\r\x1b[Kchecking class a: the reference"
    with stage_line.stages(quiet=False) as progress:
        progress(Progress(stage="checking", detail="class a: the reference"))
        while not re.search(rf"{re.escape(stage)}, \d+ s", shown):
            time.sleep(0.05)
            shown += capsys.readouterr().err
    assert shown.startswith(f"{stage}\r\x1b[K")
    assert capsys.readouterr().err.endswith("\r\x1b[K")  # cleared for later output


def test_seconds_of_a_stage_exclude_waiting(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr(stage_line.time, "monotonic", lambda: now)
    line = stage_line.StageLine()
    line.show(Progress(stage="timing", detail="pair 1 of 4"))
    now += 5
    for text in ("waiting for cpu: held by a", "waiting for cpu: held by b"):
        line.show(Progress(stage="waiting", detail=text))
        assert capsys.readouterr().err.endswith(f"\x1b[K{text}")
        now += 60
    line.show(Progress(stage="timing", detail="pair 1 of 4"))
    now += 2
    line.print_seconds()
    assert capsys.readouterr().err.endswith("timing pair 1 of 4, 7 s")
    line.show(Progress(stage="timing", detail="pair 2 of 4"))
    now += 4
    line.print_seconds()
    assert capsys.readouterr().err.endswith("timing pair 2 of 4, 4 s")


def test_each_holder_of_the_lock_is_reported_once_in_a_pipe(
        capsys: pytest.CaptureFixture[str]) -> None:
    line = stage_line.StageLog()
    for second, owner in enumerate("aab"):
        line.show(Progress(stage="waiting", detail=f"waiting for cpu: held by {owner} since "
                           f"03:00:0{second}"))
        line.show(Progress(stage="timing", detail="pair 1 of 4"))
    assert [text[:31] for text in capsys.readouterr().err.splitlines()] == [
        "kopt: waiting for cpu: held by " for _ in "ab"]
