"""A loop that ends while its card is lost is repeated on another card."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.task import Task
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import DeviceNotice
from engine.workers.knob_search import OnTrial, run_on_fleet
from engine.workers.protocol import WorkerBench
from harness.devices.device import Device
from harness.devices.monitoring.tenants import StrangerDetector
from harness.isolation.zygote_client import WarmStart
from harness.search.trials.trials import LoopResult, Trial
from harness.verdict import Correctness, Tag

TAGS: dict[Correctness, Tag] = {"PASS": "tried", "FAIL": "revert", "REJECTED": "rejected"}


class TwoCardFleet:
    """The first run's trials have the results `ends`; a second run has one trial, which passes."""

    def __init__(self, ends: Sequence[Correctness], *, dies: bool) -> None:
        self.news: list[DeviceNotice] = []
        self.ran: list[str] = []
        self.checked: list[str] = []
        self.dead: set[str] = set()
        self.cancel = threading.Event()
        self._ends, self._dies = ends, dies
        self.fleet = Fleet([(Device(id=f"cuda:{i}", kind="nvidia", name="a card", uuid=f"GPU-s{i}",
                                    index=i), WarmStart(None)) for i in range(2)],
                           retry_s=600.0, limit_s=3600.0, look=self._check, news=self.news.append)

    def _check(self, device: Device, *, just_left: bool,
               stranger_detector: StrangerDetector | None) -> str:
        self.checked.append(device.id)
        return "GPU is lost" if device.id in self.dead else ""

    def run(self) -> LoopResult | None:
        bench = cast(WorkerBench, SimpleNamespace(fleet=self.fleet))
        task = cast(Task, SimpleNamespace(trials=len(self._ends)))
        return run_on_fleet(task, bench, lambda *_: None, self.cancel, self._on)

    def _on(self, card: Any, on_trial: OnTrial) -> LoopResult:
        self.ran.append(card.device.id)
        first = len(self.ran) == 1
        trials = tuple(Trial(number=number, config={"K": number}, correctness=end, tag=TAGS[end])
                       for number, end in enumerate(self._ends if first else ["PASS"]))
        for trial in trials:
            on_trial(trial)
        if first and self._dies:
            self.dead.add(card.device.id)
        return LoopResult(best={"K": 0}, log_ratio=0.0, source="", trials=trials, space_size=9)


@pytest.mark.parametrize("ends", [["PASS", "FAIL", "FAIL"], ["PASS", "FAIL", "REJECTED"]])
def test_loop_whose_card_died_is_repeated_on_another(ends: list[Correctness]) -> None:
    """A rejected trial did not run on the card, so a failure before it still leads to a check."""
    runs = TwoCardFleet(ends, dies=True)
    result = runs.run()
    assert runs.ran == ["cuda:0", "cuda:1"]
    assert result is not None and [trial.correctness for trial in result.trials] == ["PASS"]
    assert [notice.device for notice in runs.news] == ["cuda:0"]
    assert "GPU is lost" in runs.news[0].text


def test_card_is_checked_again_if_the_last_trial_failed() -> None:
    runs = TwoCardFleet(["PASS", "FAIL"], dies=False)
    result = runs.run()
    assert result is not None and len(result.trials) == 2
    assert runs.checked == ["cuda:0", "cuda:0"]
    assert (runs.ran, runs.news) == (["cuda:0"], [])


@pytest.mark.parametrize("ends", [["FAIL", "PASS"], ["FAIL", "PASS", "REJECTED"], ["REJECTED"]])
def test_card_is_not_checked_again_unless_the_last_trial_on_it_failed(
        ends: list[Correctness]) -> None:
    runs = TwoCardFleet(ends, dies=True)
    assert runs.run() is not None
    assert (runs.ran, runs.checked, runs.news) == (["cuda:0"], ["cuda:0"], [])


def test_stopped_loop_keeps_its_result() -> None:
    """The stopped loop does not wait for another card."""
    runs = TwoCardFleet(["PASS", "FAIL"], dies=True)
    runs.cancel.set()
    result = runs.run()
    assert result is not None and len(result.trials) == 2 and runs.ran == ["cuda:0"]
