"""Whole runs of a benchmark during which the card was disturbed: repeated, counted, told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import pytest
from reported_case import judge, kernel

from harness import devices, vigil
from harness.device import Device
from harness.errors import DeviceFault
from harness.evaluate import Settings, Trees
from harness.reported.endtoend import EndToEnd, measure
from harness.verdict import Evidence

STRANGER = "process 4711 came onto the card"
FAILS_ONCE = """
import os
def spoil(rows):
    if os.path.exists("ran"):
        return rows
    open("ran", "w").close()
"""


class Disturbed:
    """A card that somebody comes onto during the first so many runs that are asked about."""

    def __init__(self, times: int) -> None:
        self.left = times

    def voids(self, begin_ns: int, end_ns: int) -> str:
        assert begin_ns < end_ns <= perf_counter_ns()
        self.left -= 1
        return STRANGER if self.left >= 0 else ""

    def evidence(self, voided: Mapping[str, int]) -> Iterator[Evidence]:
        for why, count in voided.items():
            yield Evidence(kind="voided", detail=f"{count} for {why}")


def disturb(monkeypatch: pytest.MonkeyPatch, times: int) -> Disturbed:
    card = Disturbed(times)

    @contextmanager
    def over(device: Device) -> Iterator[Disturbed]:
        yield card
    monkeypatch.setattr(vigil, "over", over)
    return card


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_foreign_job_that_arrives_during_a_run_voids_its_pair(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    card = disturb(monkeypatch, times)
    verdict = judge(tmp_path, kernel(80.0))
    assert verdict.valid and {row.pairs for row in verdict.rows} == {3}, verdict
    assert card.left == -3  # every pair that counts was asked about, and every other one repeated
    told = [one.detail for one in verdict.evidence if one.kind == "voided"]
    assert told == ([f"{times} for {STRANGER}"] if times else [])


def test_a_run_that_fails_while_it_is_disturbed_is_no_fault_of_the_candidate(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = judge(tmp_path / "alone", kernel(80.0, FAILS_ONCE))
    assert not alone.valid and "bench.csv" in (alone.rejected_reason or "")
    disturb(monkeypatch, 1)
    assert judge(tmp_path / "beside", kernel(80.0, FAILS_ONCE)).valid


def test_a_card_that_is_not_left_alone_is_a_fault_of_the_card(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, 1 << 30)
    with pytest.raises(DeviceFault, match="had to be voided: process 4711"):
        judge(tmp_path, kernel(80.0))


def test_runs_of_the_whole_program_are_repeated_as_well(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = disturb(monkeypatch, 2)
    (tmp_path / "tree").mkdir()
    tree = str(tmp_path / "tree")
    verdict = measure(EndToEnd(command="true"), Trees(candidate=tree, incumbent=tree,
                                                      reference=tree),
                      devices.find("cpu"), Settings(scratch=str(tmp_path / "scratch")))
    assert verdict.valid and card.left == -6, verdict
    assert [one.detail for one in verdict.evidence] == [f"2 for {STRANGER}"]
