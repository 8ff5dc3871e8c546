"""An AMD card is checked once for a whole measurement: its tools are too slow for each block."""

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
APPEARED = f"process {os.getppid()} started to use the card"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the pids and the throttle status that amd-smi prints."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "amd-smi"
    tool.write_text(f"#!/bin/sh\nexec cat {tmp_path}/$1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def prints(*pids: int, throttle: str = "UNTHROTTLED") -> None:
        [metric], [running] = json.loads(POWER.read_text()), json.loads(PROCESSES.read_text())
        metric["power"]["throttle_status"] = throttle
        listed = [{"process_info": {**running["process_list"][0]["process_info"], "pid": pid}}
                  for pid in pids]
        for name, answer in (("process", [{**running, "process_list": listed}]),
                             ("metric", [metric])):
            (tmp_path / "new").write_text(json.dumps(answer))
            (tmp_path / "new").replace(tmp_path / name)

    prints(os.getpid())
    return prints


@pytest.fixture
def watching(card: Callable[..., None]) -> Iterator[InterferenceMonitor]:
    with interference.monitored(CARD) as monitor:
        assert monitor is not None
        yield monitor


@pytest.fixture
def patient(card: Callable[..., None]) -> Iterator[InterferenceMonitor]:
    with interference.monitored(CARD, patient=True) as monitor:
        assert monitor is not None
        yield monitor


def block(watching: InterferenceMonitor) -> str:
    began_ns = perf_counter_ns()
    return watching.voids(began_ns, perf_counter_ns())


@pytest.mark.parametrize(("pids", "throttle", "reason"), [
    ((), "UNTHROTTLED", ""),
    ((os.getppid(),), "UNTHROTTLED", APPEARED),
    ((), "THROTTLED", ""),  # may mean the power limit, which is the normal state
])
def test_process_that_appears_voids_the_whole_measurement(
        pids: tuple[int, ...], throttle: str, reason: str, card: Callable[..., None],
        watching: InterferenceMonitor) -> None:
    assert block(watching) == ""
    card(os.getpid(), *pids, throttle=throttle)
    began_ns = perf_counter_ns()
    assert block(watching) == "", "a block repeated at once would get the same sample"
    assert perf_counter_ns() - began_ns < 50e6, "no block waits for a tool"
    assert watching.voids_all() == reason


def test_earlier_process_is_reported_and_voids_nothing(card: Callable[..., None]) -> None:
    card(os.getpid(), os.getppid())
    with interference.monitored(CARD) as watching:
        assert watching is not None
        assert block(watching) == "" == watching.voids_all()
        details = {line.kind: line.detail for line in watching.evidence({})}
    assert str(os.getppid()) in details[interference.COMPANY]
    assert details["clocks"] == "up to 10 W"
    assert details[interference.STRANGER] == (
        f"timed while process {os.getppid()} ran, which no kopt started")


OTHER_KOPT = """\
import os, select, subprocess, sys
from harness.devices.monitoring import tenants
parent = os.pidfd_open(os.getpid())
if os.fork():
    os._exit(0)
select.select([parent], [], [])  # the other kopt is not a descendant of the test any more
with tenants.registered(sys.argv[1]), subprocess.Popen(["sleep", "60"]) as runner:
    print(runner.pid, flush=True)
    sys.stdin.read()
    runner.kill()
"""


@contextmanager
def other_kopt(device: str) -> Iterator[int]:
    """Register another kopt, no descendant of ours, on a device; yield the pid of its runner."""
    with subprocess.Popen([sys.executable, "-c", OTHER_KOPT, device], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline())


def test_process_of_another_kopt_is_not_a_stranger(card: Callable[..., None]) -> None:
    with other_kopt(CARD.lock_name) as other_pid:
        card(os.getpid(), other_pid)
        with interference.monitored(CARD) as watching:
            assert watching is not None
            details = {line.kind: line.detail for line in watching.evidence({})}
    assert str(other_pid) in details[interference.COMPANY]
    assert interference.STRANGER not in details


class Listed:
    """A card that lists these pids."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def sample(self) -> Sample:
        return Sample(at_ns=perf_counter_ns(), pids=self._pids)


def test_each_of_several_cards_has_its_own_registered_users() -> None:
    """Another kopt is registered on the second of two cards alone."""
    with other_kopt("gpu-second") as other_pid, \
            TelemetryWatch(Listed(os.getpid()), runners=9) as first, \
            TelemetryWatch(Listed(os.getpid(), other_pid, os.getppid()),
                           runners=9) as second:
        monitor = InterferenceMonitor(first, second, detectors=[
            StrangerDetector("gpu-first"), StrangerDetector("gpu-second")])
    assert (monitor.residents, monitor.strangers) == ({other_pid, os.getppid()}, {os.getppid()})


def test_ending_process_is_not_a_stranger() -> None:
    """A runner that a loop has just ended is not a descendant of ours any more."""
    with subprocess.Popen(["sleep", "60"]) as dropped:
        requests: list[set[int]] = []

        class Leaving(StrangerDetector):
            def strangers(self, listed: Iterable[int]) -> set[int]:
                requests.append(set(listed))
                dropped.kill()
                dropped.wait()
                return {dropped.pid}

        with TelemetryWatch(Listed(os.getpid(), os.getppid()), runners=9) as watch:
            monitor = InterferenceMonitor(watch, detectors=[Leaving("gpu-leaving")])
            assert monitor.strangers == set()
    assert requests == [{os.getpid(), os.getppid()}] * 2


def test_failing_tool_is_reported_and_voids_nothing(card: Callable[..., None], tmp_path: Path,
                                                    watching: InterferenceMonitor) -> None:
    assert block(watching) == ""
    (tmp_path / "metric").unlink()
    assert watching.voids_all() == ""
    [detail] = [line.detail for line in watching.evidence({}) if "incomplete: " in line.detail]
    assert "samples failed" in detail


def test_voided_benchmark_run_is_repeated(card: Callable[..., None],
                                          patient: InterferenceMonitor) -> None:
    runs = []

    def run() -> int:
        card(os.getpid(), *[os.getppid()] * (not runs))
        runs.append(perf_counter_ns())
        return len(runs)

    undisturbed = CleanRuns(patient)
    count = undisturbed(run)  # the sample before the second run may still be that of the first
    assert count in (2, 3) and undisturbed.voided == {APPEARED: count - 1}
