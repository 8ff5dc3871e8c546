"""Tests what a person finds in the morning after a night that did not go as planned."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from engine.journal.read import Reader
from engine.journal.write import Writer
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import Focus, SlotRow, Snapshot
from kopt_tui.snapshot.snapshot_builder import Builder
from tests.support.dashboards import samples
from tests.support.programs.command_line import NAME, answer, kopt, write_campaign


def test_report_says_that_the_engine_is_gone(tmp_path: Path) -> None:
    """After a reboot `kopt status` said `lost`, but the report that the campaign was running."""
    write_campaign(tmp_path, state="running", reason="")
    advice = f"its engine is gone; kopt resume {NAME} continues it"
    assert advice in kopt("status", workspace=tmp_path).stdout
    report = answer(kopt("report", "--json", workspace=tmp_path))["markdown"]
    assert f"- state: lost: {advice}" in report and "is running" not in report
    assert f"The campaign is lost after the baseline: {advice}." in report


def test_campaign_that_ended_before_its_time_says_what_continues_it(tmp_path: Path) -> None:
    """After a full disk it said to free some space, and not what to do then."""
    write_campaign(tmp_path, state="failed", reason="the disk is full (free some space)")
    for verb in ("status", "show"):
        text = " ".join(kopt(verb, workspace=tmp_path).stdout.split())
        assert f"the disk is full (free some space); kopt resume {NAME} continues it" in text


@pytest.mark.parametrize(("stage", "progress", "is_shown"), [
    ("searching", 0.05, False), ("queued", None, False), ("tie", 1.0, True)])
def test_slot_of_a_campaign_without_an_engine_is_shown_only_if_it_has_ended(
        stage: str, progress: float | None, is_shown: bool, tmp_path: Path) -> None:
    """A stopped campaign's slots were shown as searching, at 5 %, and waiting for a device."""
    write_campaign(tmp_path, state="stopped", reason="stopped by ann")
    writer = Writer(tmp_path)
    writer.put_slots([samples.slot("fixed-1", 1, NAME, stage=stage, progress=progress,
                                   detail="trial 1 of 20")])
    writer.close()
    text = kopt("show", workspace=tmp_path).stdout
    assert ("trial 1 of 20" in text, "cut off" in text) == (is_shown, not is_shown)
    reader = Reader(tmp_path)
    [row] = slots_of(Builder(tmp_path, reader, time.time).snapshot(Focus(campaign=NAME)))
    reader.close()
    assert row.slot.stage == (stage if is_shown else "cut off")


def slots_of(snapshot: Snapshot) -> tuple[SlotRow, ...]:
    assert snapshot.view is not None
    return snapshot.view.slots


@pytest.mark.parametrize(("best", "provisional", "shown"), [
    ("b", "provisional 2.04x [2.02, 2.05], waiting for approval of dd44", "? 2.04x"),
    ("b", "provisional not measured yet, waiting for approval of dd44", ""), ("b", "", ""),
    ("c", "provisional 2.04x [2.02, 2.05], waiting for approval of dd44", "2.50x [2.40, 2.60]")])
def test_table_shows_what_waits_where_nothing_is_kept(
        best: str, provisional: str, shown: str) -> None:
    """The column was empty in the morning, though a gain of 2.04x waited."""
    row = samples.campaign(NAME, base_commit="b" * 40, best_commit=best * 40, speedup=2.5,
                           speedup_low=2.4, speedup_high=2.6)
    row = msgspec.structs.replace(row, speedup=None) if best == "b" else row
    assert phrases.best_or_waiting(row, provisional) == shown
