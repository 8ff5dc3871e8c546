"""An AMD card over a measurement: its tools take too long to be asked about every block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import pytest

from harness.benchmark.runs.clean_runs import CleanRuns
from harness.devices.device import Device
from harness.devices.monitoring import interference
from harness.devices.monitoring.interference import InterferenceMonitor
from harness.devices.monitoring.telemetry import Sample, TelemetryWatch
from harness.devices.monitoring.tenants import StrangerDetector
from tests.support.paths import DATA

CARD = Device(id="hip:0", kind="amd", name="AMD Instinct MI210", uuid="GPU-1")
POWER = DATA / "devices" / "metric_power_rocm6.0.json"
PROCESSES = POWER.with_name("process_two_procs_rocm6.2.json")
COMES = f"process {os.getppid()} came onto the card"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have amd-smi say who is on the card and whether it is throttled, from now on."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "amd-smi"
    tool.write_text(f"#!/bin/sh\nexec cat {tmp_path}/$1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def says(*pids: int, throttle: str = "UNTHROTTLED") -> None:
        [metric], [running] = json.loads(POWER.read_text()), json.loads(PROCESSES.read_text())
        metric["power"]["throttle_status"] = throttle
        listed = [{"process_info": {**running["process_list"][0]["process_info"], "pid": pid}}
                  for pid in pids]
        for name, answer in (("process", [{**running, "process_list": listed}]),
                             ("metric", [metric])):
            (tmp_path / "new").write_text(json.dumps(answer))
            (tmp_path / "new").replace(tmp_path / name)

    says(os.getpid())
    return says


@pytest.fixture
def watching(card: Callable[..., None]) -> Iterator[InterferenceMonitor]:
    with interference.monitored(CARD) as found:
        assert found is not None
        yield found


@pytest.fixture
def patient(card: Callable[..., None]) -> Iterator[InterferenceMonitor]:
    with interference.monitored(CARD, patient=True) as found:
        assert found is not None
        yield found


def block(watching: InterferenceMonitor) -> str:
    began_ns = perf_counter_ns()
    return watching.voids(began_ns, perf_counter_ns())


@pytest.mark.parametrize(("pids", "throttle", "why"), [
    ((), "UNTHROTTLED", ""),
    ((os.getppid(),), "UNTHROTTLED", COMES),
    ((), "THROTTLED", ""),  # for heat or for power: it does not say, and power is the normal state
])
def test_who_comes_while_it_is_timed_on_voids_all_of_it(
        pids: tuple[int, ...], throttle: str, why: str, card: Callable[..., None],
        watching: InterferenceMonitor) -> None:
    assert block(watching) == ""
    card(os.getpid(), *pids, throttle=throttle)
    began_ns = perf_counter_ns()
    assert block(watching) == "", "what is repeated at once would find the same sample"
    assert perf_counter_ns() - began_ns < 50e6, "a block waits for no tool"
    assert watching.voids_all() == why


def test_who_was_there_before_is_told_and_voids_nothing(card: Callable[..., None]) -> None:
    card(os.getpid(), os.getppid())
    with interference.monitored(CARD) as watching:
        assert watching is not None
        assert block(watching) == "" == watching.voids_all()
        told = {one.kind: one.detail for one in watching.evidence({})}
    assert str(os.getppid()) in told[interference.COMPANY] and told["clocks"] == "up to 10 W"
    assert told[interference.STRANGER] == f"timed beside process {os.getppid()}, of no kopt"


OTHER_KOPT = """\
import os, subprocess, sys
from harness.devices.monitoring import tenants
if os.fork():
    os._exit(0)  # it is nobody's child then
with tenants.registered(sys.argv[1]), subprocess.Popen(["sleep", "60"]) as runner:
    print(runner.pid, flush=True)
    sys.stdin.read()
    runner.kill()
"""


@contextmanager
def other_kopt(device: str) -> Iterator[int]:
    """Have another kopt on a device, which is no family of ours; yields a process of its."""
    with subprocess.Popen([sys.executable, "-c", OTHER_KOPT, device], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline())


def test_another_kopt_s_process_is_company_and_no_stranger(card: Callable[..., None]) -> None:
    with other_kopt(CARD.lock_name) as theirs:
        card(os.getpid(), theirs)
        with interference.monitored(CARD) as watching:
            assert watching is not None
            told = {one.kind: one.detail for one in watching.evidence({})}
    assert str(theirs) in told[interference.COMPANY] and interference.STRANGER not in told


class Listed:
    """A card that shows so many processes."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def sample(self) -> Sample:
        return Sample(at_ns=perf_counter_ns(), pids=self._pids)


def test_of_several_cards_each_knows_its_own_kopts() -> None:
    """A campaign on two cards, and another kopt on the second of them alone."""
    with other_kopt("gpu-second") as theirs, \
            TelemetryWatch(Listed(os.getpid()), runners=lambda: 9) as first, \
            TelemetryWatch(Listed(os.getpid(), theirs, os.getppid()), runners=lambda: 9) as second:
        found = InterferenceMonitor(first, second, neighbours=[
            StrangerDetector("gpu-first"), StrangerDetector("gpu-second")])
    assert (found.residents, found.strangers) == ({theirs, os.getppid()}, {os.getppid()})


def test_who_is_ending_is_no_stranger() -> None:
    """A runner that a loop on the card has just dropped is in no family any more."""
    with subprocess.Popen(["sleep", "60"]) as dropped:
        asked: list[set[int]] = []

        class Leaving(StrangerDetector):
            def strangers(self, listed: Iterable[int]) -> set[int]:
                asked.append(set(listed))
                dropped.kill()
                dropped.wait()
                return {dropped.pid}

        with TelemetryWatch(Listed(os.getpid(), os.getppid()), runners=lambda: 9) as watch:
            assert (
                InterferenceMonitor(
                    watch, neighbours=[Leaving("gpu-leaving")]
                ).strangers
                == set()
            )
    assert asked == [{os.getpid(), os.getppid()}] * 2


def test_a_tool_that_fails_voids_nothing_and_is_told(card: Callable[..., None], tmp_path: Path,
                                                     watching: InterferenceMonitor) -> None:
    assert block(watching) == ""
    (tmp_path / "metric").unlink()
    assert watching.voids_all() == ""
    [told] = [one.detail for one in watching.evidence({}) if "not all known" in one.detail]
    assert "samples failed" in told


def test_a_run_of_a_benchmark_is_repeated(card: Callable[..., None],
                                          patient: InterferenceMonitor) -> None:
    runs = []

    def run() -> int:
        card(os.getpid(), *[os.getppid()] * (not runs))
        runs.append(perf_counter_ns())
        return len(runs)

    undisturbed = CleanRuns(patient)
    count = undisturbed(run)  # the sample before the second one may still be of the first
    assert count in (2, 3) and undisturbed.voided == {COMES: count - 1}
