"""A harness reports, in any stage, that it waits while another process measures."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from engine.verify import harness_client
from harness.isolation import device_lock
from harness.requests import EvaluateRequest, LoopRequest, Progress
from harness.search.trials.trials import SearchJob
from harness.settings import Trees
from tests.support.kernels import c_case


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv(device_lock.OWNER, "")


class OtherKopt:
    """Holds the device until the harness reports that it waits; `stages` has all of its reports."""

    def __init__(self) -> None:
        self._held: device_lock.DeviceLock | None = device_lock.acquire("cpu")
        self.stages: list[Progress] = []

    def show(self, line: Progress) -> None:
        self.stages.append(line)
        if line.stage == "waiting" and self._held is not None:
            self._held.release()
            self._held = None


def test_build_that_is_stopped_by_another_measurement_is_shown_as_waiting(tmp_path: Path) -> None:
    source = c_case.tree(tmp_path / "tree", c_case.SLOW)
    other = OtherKopt()
    verdict = harness_client.evaluate(EvaluateRequest(
        target=c_case.target(), trees=Trees(candidate=source, incumbent=source, reference=source),
        device="cpu", settings=c_case.settled(tmp_path / "scratch")), progress=other.show,
        limit_s=60.0)
    assert verdict.correct
    shown = [stage for stage, _ in itertools.groupby(line.stage for line in other.stages)]
    before = shown.index("waiting") - 1
    assert shown[before] == shown[before + 2] == "building", shown
    wait = next(line for line in other.stages if line.stage == "waiting")
    assert wait.detail.startswith("waiting for cpu: held by process ")


def test_search_shows_that_it_waits_and_that_it_goes_on(tmp_path: Path) -> None:
    knob = "#define STEPS 4  /* kopt: knob STEPS in [1, 2, 4] */\n"
    source = c_case.tree(tmp_path / "tree", knob + c_case.SLOW.replace("k < 4", "k < STEPS"))
    other, cancel = OtherKopt(), threading.Event()

    def show(line: Progress) -> None:
        other.show(line)
        if other.stages[-1].stage == "starting":
            cancel.set()

    harness_client.loop(LoopRequest(
        target=c_case.target(), device="cpu", settings=c_case.settled(tmp_path / "scratch"),
        job=SearchJob(tree=source, reference=source, budget=2, seed=1)), progress=show,
        cancel=cancel)
    assert [line.stage for line in other.stages][:2] == ["waiting", "starting"]
