"""Benchmarks that need several cards: a run locks and sees all of them.

The cards do not exist; their locks and the environments of the commands are real.
"""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import judged_target
from engine.manifest import benchmark_target, load
from engine.verify.fleet import Fleet
from harness.benchmark.runs import command_session
from harness.benchmark.runs.command_session import CommandSession
from harness.devices import inventory
from harness.devices.device import Device, DeviceKind, join_cards
from harness.errors import DeviceFault, InputError
from harness.isolation import device_lock
from harness.isolation.zygote_client import WarmStart
from harness.settings import Settings
from tests.support.benchmarks import benchmark_case

NAMES = itertools.count()
WAIT_S = 60.0
NOTE = ("python -c \"import json,os; print(json.dumps({n: v for n, v in os.environ.items() "
        "if n.endswith('VISIBLE_DEVICES')}))\" > visible.json")


def cards(count: int, kind: DeviceKind = "nvidia") -> list[Device]:
    return [Device(id=f"cuda:{index}", kind=kind, name="NVIDIA H200", index=index, arch="sm_90",
                   uuid=f"GPU-stand-in-{next(NAMES)}") for index in range(count)]


def session(folder: Path, device: Device) -> CommandSession:
    (folder / "tree").mkdir(parents=True)
    return CommandSession(folder / "work", device, command_session.environment_of(
        device, Settings(scratch=str(folder)), WAIT_S, None))


@pytest.mark.parametrize("kind", ["nvidia", "amd"])
def test_commands_see_all_cards_and_hold_all_locks(kind: DeviceKind, tmp_path: Path) -> None:
    pair = cards(2, kind)
    with session(tmp_path, join_cards(pair)) as opened:
        copy = opened.copy("incumbent", tmp_path / "tree")
        opened.run_untimed(copy, NOTE)
        seen = json.loads((copy.tree / "visible.json").read_text())
        with opened.lock():
            assert all(device_lock.holder(card.lock_name) is not None for card in pair)
    both = ",".join(card.uuid for card in pair)
    wanted = {"CUDA_VISIBLE_DEVICES": both} if kind == "nvidia" else {
        "ROCR_VISIBLE_DEVICES": both, "HIP_VISIBLE_DEVICES": "0,1"}
    assert seen.items() >= wanted.items()
    assert all(device_lock.holder(card.lock_name) is None for card in pair)


def test_overlapping_groups_never_run_together_and_never_deadlock(tmp_path: Path) -> None:
    """Each group names its cards in another order; locks are taken in sorted order: no deadlock."""
    a, b, c = cards(3)
    groups = [join_cards(group) for group in ((a, b), (b, c), (c, a), (b, a, c))]
    inside, clashes, turns = set[str](), list[str](), list[int]()
    guard = threading.Lock()

    def work(number: int, device: Device) -> None:
        with session(tmp_path / str(number), device) as opened:
            for _ in range(20):
                with opened.lock():
                    with guard:
                        clashes.extend(inside.intersection(device.lock_names))
                        inside.update(device.lock_names)
                    with guard:
                        inside.difference_update(device.lock_names)
                turns.append(number)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not clashes and len(turns) == 20 * len(groups)


def manifest(tmp_path: Path, **gpu: Any) -> Path:
    return benchmark_case.project(tmp_path / "p", gpu={"device": "auto", **gpu})


def test_manifest_says_how_many_cards_a_run_needs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four = cards(4)
    monkeypatch.setattr(inventory, "find", lambda name: four[0])
    monkeypatch.setattr(inventory, "same_model", lambda first: four)
    loaded = load.load(manifest(tmp_path, count=2))
    task = benchmark_target.command_target(loaded)
    devices = judged_target.devices_for(loaded, task)
    assert [device.id for device in devices] == ["cuda:0+cuda:1", "cuda:2+cuda:3"]
    assert {device.label for device in devices} == {"2 x NVIDIA H200"}
    used = list[str]()
    both = threading.Barrier(2, timeout=WAIT_S)
    fleet = Fleet([(device, WarmStart(None)) for device in devices], retry_s=1.0, limit_s=1.0,
                  look=lambda *_, **__: "")

    def verdict() -> None:
        fleet.run("verdict", lambda card: (both.wait(), used.append(card.device.id)))

    threads = [threading.Thread(target=verdict) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(used) == [device.id for device in devices]


@pytest.mark.parametrize(("gpu", "words"), [
    ({"device": "cpu", "count": 2}, "the CPU is one device"),
    ({"count": 4, "cards": 2}, "gpu.cards: 2 is less than gpu.count, 4"),
    ({"count": 0}, "at least 1")])
def test_impossible_numbers_of_cards_are_refused(
        gpu: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        load.load(manifest(tmp_path, **gpu))


def test_too_few_cards_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cards(1)
    monkeypatch.setattr(inventory, "find", lambda name: one[0])
    monkeypatch.setattr(inventory, "same_model", lambda first: one)
    loaded = load.load(manifest(tmp_path, count=2))
    with pytest.raises(DeviceFault, match="needs 2 GPUs of one model, and there are 1"):
        judged_target.devices_for(loaded, benchmark_target.command_target(loaded))
