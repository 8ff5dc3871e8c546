"""Disturbed benchmark runs are repeated, counted and reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import cast

import pytest

from harness.benchmark.spec.command_target import EndToEndTarget
from harness.benchmark.verdict.whole_program import measure_end_to_end
from harness.devices import inventory
from harness.devices.device import SLOWDOWNS, Device
from harness.devices.monitoring import interference, telemetry
from harness.devices.monitoring.interference import InterferenceMonitor
from harness.devices.monitoring.telemetry import CardHealth, Sample, TelemetryWatch
from harness.devices.nvidia import REASONS
from harness.errors import DeviceFault
from harness.settings import Settings, Trees
from harness.verdict import Evidence, Verdict
from tests.support.benchmarks.benchmark_case import judge, kernel

STRANGER = "process 4711 came onto the card"
FAILS_ONCE = """
import os
def spoil(rows):
    if os.path.exists("ran"):
        return rows
    open("ran", "w").close()
"""


class Disturbed:
    """A card on which another process appears during the first `times` runs."""

    def __init__(self, times: int) -> None:
        self.left = times

    def voids(self, begin_ns: int, end_ns: int) -> str:
        assert begin_ns < end_ns <= perf_counter_ns()
        self.left -= 1
        return STRANGER if self.left >= 0 else ""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        for why, count in voided.items():
            yield Evidence(kind="voided", detail=f"{count} for {why}")


def disturb(monkeypatch: pytest.MonkeyPatch, by: int | Disturbed) -> Disturbed:
    card = Disturbed(by) if isinstance(by, int) else by

    @contextmanager
    def over(device: Device, *, runners: int, share: float,
             patient: bool) -> Iterator[Disturbed]:
        assert (runners, share, patient) == (4096, 0.05, True)  # a command has many processes
        yield card
    monkeypatch.setattr(interference, "monitored", over)
    return card


class Heated(Disturbed):
    """A card that slowed down during a run if the run wrote the current time into a file `hot`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def voids(self, begin_ns: int, end_ns: int) -> str:
        marks = [int(line) for path in self.folder.rglob("hot")
                 for line in path.read_text().split()]
        return "thermal slowdown" if any(begin_ns < at < end_ns for at in marks) else ""


def test_foreign_process_voids_the_pairs_that_it_disturbs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times, voided = 3, 2
    card = disturb(monkeypatch, times)
    verdict = judge(tmp_path, kernel(80.0))
    assert verdict.valid and {row.pairs for row in verdict.rows} == {3}, verdict
    assert card.left == times - 2 * (3 + voided)  # both runs of every pair were checked
    voided_details = [entry.detail for entry in verdict.evidence if entry.kind == "voided"]
    assert voided_details == [f"{voided} for {STRANGER}"]


def test_disturbed_failing_run_is_repeated(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = judge(tmp_path / "alone", kernel(80.0, FAILS_ONCE))
    assert not alone.valid and "bench.csv" in (alone.rejected_reason or "")
    disturb(monkeypatch, 1)
    assert judge(tmp_path / "beside", kernel(80.0, FAILS_ONCE)).valid


def test_constant_disturbance_is_a_device_fault(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, 1 << 30)
    with pytest.raises(DeviceFault, match="in a row were disturbed: process 4711"):
        judge(tmp_path, kernel(80.0))


def test_disturbed_program_runs_are_repeated(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = disturb(monkeypatch, 2)
    (tmp_path / "tree").mkdir()
    tree = str(tmp_path / "tree")
    verdict = measure_end_to_end(
        EndToEndTarget(command="true"),
        Trees(candidate=tree, incumbent=tree, reference=tree),
        inventory.find("cpu"),
        Settings(scratch=str(tmp_path / "scratch")),
    )
    assert verdict.valid and card.left == -6, verdict
    assert [entry.detail for entry in verdict.evidence] == [f"2 for {STRANGER}"]


class Beside(Disturbed):
    """A card that another process uses from the start."""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        yield Evidence(kind=interference.STRANGER, detail="timed beside process 7")


def test_failure_while_a_stranger_runs_reports_the_stranger(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process may be the cause, by the memory that it holds."""
    disturb(monkeypatch, Beside(0))
    fails, wrong = "raise SystemExit('full')\n", "def spoil(rows):\n    return rows[:1]\n"
    (tmp_path / "whole").mkdir()
    for verdict in (
            judge(tmp_path / "fails", kernel(80.0, fails)),
            judge(tmp_path / "wrong", kernel(80.0, wrong)),
            measure_end_to_end(EndToEndTarget(command="python program.py"),
                    programs(tmp_path / "whole", candidate=fails, incumbent=""),
                    inventory.find("cpu"), Settings(scratch=str(tmp_path / "scratch")))):
        assert not verdict.valid or not verdict.correct, verdict
        assert "timed beside process 7" in [entry.detail for entry in verdict.evidence], verdict


HEATS = """
import time
with open("hot", "a") as file:
    file.write(f"{time.perf_counter_ns()}\\n")
"""


@pytest.mark.parametrize(("more", "why"), [
    ("", "4 runs in a row were disturbed: thermal slowdown, while none of the incumbent's was"),
    ("def after():\n    raise SystemExit('burnt')\n", "exited with 1: burnt")])
def test_candidate_is_rejected_if_only_its_runs_are_disturbed(
        more: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, Heated(tmp_path))
    verdict = judge(tmp_path, kernel(80.0, HEATS + more))
    assert not verdict.valid and verdict.rejected_reason == why


def test_disturbance_of_both_sides_is_a_device_fault(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, Heated(tmp_path))
    with pytest.raises(DeviceFault, match="in a row were disturbed: thermal slowdown"):
        judge(tmp_path, kernel(80.0, HEATS), incumbent=kernel(100.0, HEATS))


def programs(folder: Path, **sources: str) -> Trees:
    for side, source in sources.items():
        (folder / side).mkdir()
        (folder / side / "program.py").write_text(source)
    return Trees(candidate=str(folder / "candidate"), incumbent=str(folder / "incumbent"),
                 reference="")


@pytest.mark.parametrize("incumbent", ["", HEATS])
def test_disturbed_program_is_rejected_unless_the_incumbent_is_disturbed_too(
        incumbent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = Heated(tmp_path)
    disturb(monkeypatch, hot)
    trees = programs(tmp_path, candidate=HEATS, incumbent=incumbent)

    def verdict() -> Verdict:
        return measure_end_to_end(
            EndToEndTarget(command="python program.py"),
            trees,
            inventory.find("cpu"),
            Settings(scratch=str(tmp_path / "scratch")),
        )

    if incumbent:
        with pytest.raises(DeviceFault):
            verdict()
    else:
        assert "while none of the incumbent's was" in (verdict().rejected_reason or "")


def test_disturbed_build_is_not_repeated(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, 2)
    verdict = measure_end_to_end(
        EndToEndTarget(command="true", setup_command="mkdir set-up", build_command="mkdir built"),
        programs(tmp_path, candidate="", incumbent=""), inventory.find("cpu"),
        Settings(scratch=str(tmp_path / "scratch")))
    assert verdict.valid and verdict.rows[0].pairs == 3


class SlowedWatch:
    """A watch of a card with slowdowns in some of its samples."""

    prompt = True

    def __init__(self, slowed: int) -> None:
        samples = [Sample(at_ns=at, reasons=SLOWDOWN if at < slowed else 0) for at in range(100)]
        self.health = telemetry._health(samples, (), "", "")

    def between(self, begin_ns: int, end_ns: int) -> CardHealth:
        return self.health


SLOWDOWN = next(bit for bit, name in REASONS.items() if name in SLOWDOWNS)


@pytest.mark.parametrize(("slowed", "share", "voids"), [
    (0, 0.0, False), (1, 0.0, True), (0, 0.05, False), (4, 0.05, False), (5, 0.05, True)])
def test_run_is_void_only_if_the_share_of_slow_samples_is_reached(
        slowed: int, share: float, voids: bool) -> None:
    watch = InterferenceMonitor(cast(TelemetryWatch, SlowedWatch(slowed)), share=share)
    assert bool(watch.voids(0, 1)) == voids
