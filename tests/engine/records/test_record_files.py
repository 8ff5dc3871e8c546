"""Tests the files for people: the same journal gives the same bytes, and logs only grow."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from engine.history import campaign_view
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.records import performance
from engine.records.writer import Records
from engine.task import Task
from engine.workers.cli import prompt_text
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.records_case import KEPT, contents, lose
from tests.support.kernels import c_case

Recorded = tuple[Records, Reader, Writer]


@pytest.fixture
def campaign(tmp_path: Path) -> Recorded:
    return case.record_campaign(tmp_path)


def test_same_journal_gives_same_bytes(campaign: Recorded) -> None:
    """Files that were deleted or damaged are written again."""
    records, reader, _ = campaign
    records.write_all(reader)
    patches = {name: data for name, data in contents(records.folder.path).items()
               if name.startswith("patches/") or name == "manifest.yaml"}
    before = {name: data for name, data in contents(records.folder.path).items()
              if name not in patches}
    kept = {name.split("/")[-1] for name in before}
    assert kept == {"performance.md", "optimize.md", "performance_trend.md", "results.tsv",
                    "report.md", "report.html", "summary.md", "scale.c",
                    *(f"{c}.{end}" for c in ("c1", *(f"c{n}" for n in range(3, 9)))
                      for end in ("patch", "verdict.json"))}
    for name in before:
        (records.folder.path / name).unlink()
    Records(records.setup).write_all(reader)  # as another engine does
    assert contents(records.folder.path) == before | patches
    for name in before:
        (records.folder.path / name).write_bytes(b"\xff torn")
    Records(records.setup).write_all(reader)
    assert contents(records.folder.path) == before | patches


def test_times_are_in_the_zone_where_the_campaign_began(
        campaign: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell or container with another zone writes the same bytes."""
    records, reader, _ = campaign
    records.write_all(reader)
    before = contents(records.folder.path)
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        Records(records.setup).write_all(reader)
        assert contents(records.folder.path) == before
    finally:
        monkeypatch.undo()
        time.tzset()


def test_number_of_updates_does_not_change_files(tmp_path: Path) -> None:
    """Writing after every round gives the same files as writing once at the end."""
    records, writer = case.begin(tmp_path)
    reader = Reader(tmp_path)
    for n in range(2, 12):
        if n == 6:
            writer.event("rms", "stagnation", "6", round=6, depth="review", rollbacks=4,
                         demands="leave the old direction", directions=["A", "B", "C"])
        lose(writer, records.folder, n, f"c{n}")
        records.write_all(reader)
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(reader)
    before = contents(records.folder.path)
    Records(records.setup).write_all(reader)
    assert contents(records.folder.path) == before


def test_logs_only_ever_grow(campaign: Recorded) -> None:
    """`tail -f` works on them; another stop replaces only optimize.md's Stop Summary and report."""
    records, reader, writer = campaign
    records.write_all(reader)
    names = ("logs/optimize.md", "logs/performance_trend.md", "results.tsv")
    identity = records.folder.log.stat().st_ino
    for change in ("a round", "a keep by a person", "another stop"):
        before = contents(records.folder.path)
        if change == "a round":
            lose(writer, records.folder, 9, "c9")
        elif change == "a keep by a person":
            case.keep(writer, records.folder, 9, "late", "m" * 40, actor="ann")
        else:
            writer.event("rms", "campaign.stop", "m" * 40, reason="stopped by ann")
        records.write_all(reader)
        after = contents(records.folder.path)
        for name in names:
            grown = before[name].partition(b"## Stop Summary")[0] \
                if change == "another stop" and name == names[0] else before[name]
            assert after[name].startswith(grown), (change, name)
        assert any(after[name] != before[name] for name in names)
    assert records.folder.log.stat().st_ino == identity
    assert "## keep, decided by ann" in records.folder.log.read_text()


def test_stop_summary_has_every_field(campaign: Recorded) -> None:
    """It has time, reason, BEST_COMMIT, its metrics, and the five newest regressions."""
    records, reader, _ = campaign
    records.write_all(reader)
    for path in (records.folder.performance, records.folder.log):
        text = path.read_text().split("## Stop Summary")[1].split("## Final")[0]
        for words in ("- stop time: 20", "- stop reason: 5 consecutive measured regressions",
                      f"- current BEST_COMMIT: {KEPT}",
                      "- current best metrics: 1.54x [1.49, 1.59] against the baseline; 6.500 us "
                      "(measured-cpu); tall 6.500 us",
                      "- rounds: 7; in a row toward a stop: 6 without a gain, 6 regressions",
                      "- slower hypotheses: 6, the last 6 in a row",
                      "- budget spent: 90 s, 18 trials, cost 0.5",
                      "- candidates waiting for a person: 1", "- recent regressions: 5"):
            assert words in text
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| round ")]
        assert [row[0].strip("| ") for row in rows] == [f"round {n}" for n in range(4, 9)]
        attempt, at, base, candidate, idea, files, calls, gpu, delta, notes = rows[-1]
        assert (base, candidate, idea) == ("b0", "c8", "idea / 8 (against b1)")
        assert (files, calls, gpu, delta) == ("src/scale.c", "10.000 -> 12.500 us", "not scored",
                                              "+25.0%")
        assert attempt and at.startswith("20") and notes.startswith("tall 24.6% slower")


def test_stop_without_new_regressions_does_not_repeat_their_table(campaign: Recorded) -> None:
    records, reader, writer = campaign
    writer.event("rms", "campaign.stop", KEPT, reason="a gain was approved", wall_s=90.0, trials=18)
    records.write_all(reader)
    _, first, second = records.folder.performance.read_text().split("## Stop Summary")
    assert first.count("| round 8 |") == 1 and "| round 8 |" not in second
    assert "- recent regressions: 5, those of the stop before" in second


def test_stop_summary_keeps_the_state_of_its_time(campaign: Recorded) -> None:
    records, reader, writer = campaign
    records.write_all(reader)
    first = records.folder.performance.read_text()
    lose(writer, records.folder, 9, "c9")
    writer.event("rms", "campaign.stop", KEPT, reason="stopped by ann", wall_s=99.0, trials=21)
    records.write_all(reader)
    text = records.folder.performance.read_text()
    assert text.startswith(first) and text.count("## Stop Summary") == 2
    assert "| round 9 |" in text[len(first):] and "| round 9 |" not in first


def test_snapshot_is_the_best_kernel_after_its_round(campaign: Recorded) -> None:
    records, reader, _ = campaign
    records.write_all(reader)
    first, second = ((records.folder.round(n) / "kernel_snapshot" / "scale.c").read_text()
                     for n in (1, 2))
    assert first == "src/scale.c of b0\n" and second == f"src/scale.c of {KEPT}\n"


def test_snapshot_of_several_files_keeps_folders(campaign: Recorded) -> None:
    records, reader, _ = campaign
    records.write_all(reader)
    records.setup.repo.files = lambda commit: [  # type: ignore[method-assign]
        "README.md", "src/scale.c", "src/more/scale.h"]
    again = Records(records.setup)
    again.write_all(reader)
    assert sorted(contents(records.folder.round(2) / "kernel_snapshot")) == [
        "src/more/scale.h", "src/scale.c"]


def test_campaign_without_keep_has_no_metrics(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    writer.start_round(samples.round_(1))
    writer.event("rms", "campaign.stop", "b0", reason="stopped by ann")
    found = campaign_view.read(Reader(tmp_path), "rms")
    text = performance.page(found)
    assert "current best metrics: not measured" in text and "- rounds: 0" in text


def test_pruned_patch_removes_only_its_copy(campaign: Recorded) -> None:
    records, reader, _ = campaign
    (records.folder.patches / "c5.patch").unlink()
    records.write_all(reader)
    folder = records.folder.round(5) / "candidates" / "fixed"
    assert (folder / "c5.verdict.json").is_file() and not (folder / "c5.patch").exists()


def test_prompt_has_brief_and_round() -> None:
    task = Task(slot="fixed", kind="fixed", backend="cli", hypothesis="unroll", bottleneck="",
                seed=0, trials=0, brief="## Stagnation: \x1b[31mreview")
    bench = cast(Any, SimpleNamespace(target=c_case.target(), scratch="", edit=(), kopt=None,
                                      python=None))
    text = prompt_text(task, bench)
    assert "## Stagnation: review\n\nWhen you finish" in text
    assert "odd (n=1021)\n\nWhen you finish" in prompt_text(
        msgspec.structs.replace(task, brief=""), bench)
    assert "This is round" not in text
    numbered = prompt_text(msgspec.structs.replace(task, round=4), bench)
    assert "\n\n- This is round 4 of the campaign.\n- Edit only `twice.c`" in numbered
