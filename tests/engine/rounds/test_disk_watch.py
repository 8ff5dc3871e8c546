"""A slot that writes more than there is room for is ended, with the reason."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.rounds import disk_space
from engine.rounds.disk_space import DiskWatch
from tests.support.engines import campaigns
from tests.support.paths import KIB, fill


def test_slot_that_has_written_most_is_ended(tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path, 1000 * KIB)
    for name in "ab":
        fill(tmp_path / name / "tree", 100)
    with watch.slot(tmp_path / "a") as slot, watch.slot(tmp_path / "b") as other:
        fill(tmp_path / "a" / "new", 300)
        watch.look()
        assert not slot.cancel.is_set() and not other.cancel.is_set()
        fill(tmp_path / "b" / "new", 800)
        watch.look()
        assert other.cancel.is_set() and not slot.cancel.is_set()
        assert (slot.reason, other.reason) == ("", (
            "ended: it has written 800 KiB, and the campaign uses 1.3 MiB of the 1000 KiB of "
            "budget.disk_gb"))
        watch.look()
        assert not slot.cancel.is_set(), "the files of the slot that was ended are about to go"


def test_no_slot_is_ended_for_files_of_others(tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path, 100 * KIB)
    fill(tmp_path / "a" / "tree", 500)
    with watch.slot(tmp_path / "a") as slot:
        fill(tmp_path / "trees" / "verdict", 500)
        fill(tmp_path / "a" / "new", 10)
        watch.look()
        assert not slot.cancel.is_set()


def test_full_disk_ends_a_slot_even_without_a_disk_budget(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = DiskWatch(tmp_path, None)
    with watch.slot(tmp_path / "a") as slot:
        watch.look()
        assert not slot.cancel.is_set()
        fill(tmp_path / "a" / "new", 100)
        left = SimpleNamespace(free=disk_space.RESERVE_BYTES - 50 * KIB)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: left)
        watch.look()
        assert slot.reason.endswith("8.0 MiB are free on the disk")


def test_stop_cancels_all_slots_and_later_ones(tmp_path: Path) -> None:
    watch = DiskWatch(tmp_path, None, interval_s=0.01)
    watch.start()
    with watch.slot(tmp_path) as slot:
        watch.stop()
        assert slot.cancel.is_set() and not slot.reason
    with watch.slot(tmp_path) as late:
        assert late.cancel.is_set()


@pytest.mark.slow
def test_worker_that_fills_the_disk_is_ended(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "INTERVAL_S", 0.2)
    command = "sh -c 'dd if=/dev/zero of={worktree}/junk bs=1M count=80; sleep 500' {prompt}"
    setup = campaigns.create_with_patch(tmp_path, budget={"pairs": 4, "disk_gb": 0.05}, pool={
        "slots": 2, "workers": 2, "backends": ["inbox", "cli"],
        "cli": [{"name": "writer", "command": command}]})
    began = time.monotonic()
    assert campaigns.run(setup).error is None
    assert time.monotonic() - began < 150
    slots = campaigns.slots(setup)
    writers = {name: end for name, end in slots.items() if "inbox" not in name}
    assert writers, slots
    for stage, detail in writers.values():
        assert stage == "failed" and "ended: it has written" in detail, slots
        assert "of the 48 MiB of budget.disk_gb" in detail, slots
    assert len(campaigns.candidates(setup, "kept")) == 1
