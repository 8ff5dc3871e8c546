"""Tests that the numbers in the files for people are consistent and labelled."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.history.campaign_view import NOT_RUN
from engine.journal.read import Reader
from engine.journal.records import Bottleneck
from engine.judge.attribution import before
from engine.records import present_limits
from engine.records.report import charts
from engine.records.report.charts import ProgressPoint
from harness.verdict import Row
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.records_case import KEPT

LATER = "l" * 40
SLOWER = Row(config_class="tall", correct=True, outcome="faster", latency_us=357.875,
             incumbent_us=336.681, log_ratio=math.log(1.027), low=0.01, high=0.04)
"""Slower by the medians of the two sides, faster by the mean of the paired ratios."""


def test_times_of_best_and_candidate_have_the_measured_ratio() -> None:
    assert before(SLOWER) == pytest.approx(357.875 * 1.027)
    assert before(Row(config_class="a", correct=True, incumbent_us=2.0)) == 2.0


def test_all_files_show_times_with_the_measured_ratio(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT, rows=(SLOWER,))
    case.headline(writer, KEPT, 1.027, rows=(SLOWER,))
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.027, summary="1 kept")
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(Reader(tmp_path))
    folder = records.folder
    for file in (folder.performance, folder.log, folder.report, folder.page,
                 folder.round(2) / "summary.md"):
        assert "336.681" not in file.read_text() and "367.5" in file.read_text(), file


def test_interval_states_its_error_rate(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT, alpha=6e-5)
    case.headline(writer, KEPT, 1.54, alpha=0.05)
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.54, summary="1 kept")
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(Reader(tmp_path))
    folder = records.folder
    assert "1.50x [1.46, 1.54] at alpha 6e-05" in folder.performance.read_text()
    assert "1.54x [1.49, 1.59] at alpha 0.05 against the baseline" in folder.log.read_text()
    for file in (folder.report, folder.page):
        text = file.read_text()
        assert "1.54x [1.49, 1.59] at alpha 0.05" in text
        assert "1.50x [1.46, 1.54] at alpha 6e-05" in text
    tried = folder.report.read_text().split("## What was tried")[1].split("\n## ")[0]
    assert tried.count("alpha") == 1 and "Intervals are at alpha 6e-05" in tried
    assert "| 1.50x [1.46, 1.54] |" in tried


def test_campaign_without_keep_shows_no_gain(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path)
    writer.event("rms", "campaign.stop", "b0", reason="enough")
    records.write_all(Reader(tmp_path))
    assert "## Baseline by config class" in records.folder.performance.read_text()
    assert "Best by config class" not in records.folder.performance.read_text()
    assert "Baseline and best" not in records.folder.log.read_text()


def record_later_keep(workspace: Path, *, headline: bool) -> dict[str, str]:
    """Record a survey at 3.9 % of the roofline and a keep that reaches 20.6 %; return the files."""
    records, writer = case.begin(workspace, 2)
    writer.put_bottlenecks("rms", 2, [Bottleneck(
        campaign="rms", round=2, rank=rank, id=f"b2.{rank}", kernel="scale", config_class=name,
        limiter=limiter, metric=metric, value=3.9, detail="", advice="read less")
        for rank, (name, limiter, metric) in enumerate((
            ("", "not vectorised", "vector bytes"), ("tall", "memory", "% of roofline")), 1)])
    rows = (Row(config_class="tall", correct=True, outcome="faster", latency_us=2.0,
                log_ratio=math.log(5.0), pct_of_roofline=20.6),)
    case.keep(writer, records.folder, 2, "c1", KEPT, speedup=5.0, latency_us=2.0, rows=rows)
    writer.add_verdict("rms", "baseline", samples.verdict("baseline", speedup=0.91, rows=(Row(
        config_class="tall", correct=True, latency_us=11.0, log_ratio=math.log(0.911)),)),
        purpose="baseline")
    if headline:
        case.headline(writer, KEPT, 5.0, rows=rows, latency_us=2.0)
    writer.end_round("rms", 2, outcome="keep", best_speedup=None, summary="1 kept")
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(Reader(workspace))
    return {path.name: path.read_text() for path in records.folder.path.rglob("*.md")}


def test_present_limits_are_those_of_the_best(tmp_path: Path) -> None:
    files = record_later_keep(tmp_path, headline=True)
    limits = files["report.md"].split("## What limits it now")[1].split("##")[0]
    assert "| 20.6 % of roofline | 2.00 us as last measured | read less |" in limits
    assert "3.9" not in limits and "not vectorised" not in limits
    assert "memory in tall (20.6 % of roofline): read less" in files["optimize.md"]


def test_class_at_its_roofline_is_not_proposed_as_a_direction() -> None:
    at, below = (Bottleneck(
        campaign="rms", round=2, rank=1, id="b", kernel="k", config_class=name, limiter="memory",
        metric="% of roofline", value=value, detail="", advice="read less")
        for name, value in (("tall", 97.3), ("odd", 59.0)))
    assert present_limits.directions([at, below]) == ["memory in odd (59 % of roofline): read less"]
    assert present_limits.directions([at]) == [
        "every config class reaches 95 % of its roofline: only an algorithm that moves or computes "
        "less can gain"]


def test_advice_on_several_limits_is_given_once() -> None:
    limits = [Bottleneck(
        campaign="rms", round=2, rank=1, id="b", kernel="k", config_class=name, limiter="memory",
        metric="", value=None, detail="", advice=advice)
        for name, advice in (("tall", "read less"), ("odd", "read less"), ("wide", ""),
                             ("flat", ""), ("thin", "block it"))]
    assert present_limits.advice_once(limits) == ["read less", "as above", "", "", "block it"]


def test_round_without_a_candidate_names_what_its_slots_found(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    writer.put_slots([samples.slot("fixed", round=2, hypothesis="all knobs")])
    writer.end_slot("rms", 2, "fixed", stage="failed", detail="exited with 1")
    writer.end_round("rms", 2, outcome="failed", best_speedup=None, summary="1 slot failed")
    writer.event("rms", "campaign.stop", "b0", reason="enough")
    records.write_all(Reader(tmp_path))
    summary = (records.folder.round(2) / "summary.md").read_text()
    assert "## Decision\n\nNO CANDIDATE\n" in summary and "## Rollback analysis" not in summary
    assert "| 2 | NO CANDIDATE (failed) |" in records.folder.trend.read_text()
    assert "- no candidate of fixed: all knobs: failed: exited with 1\n" in \
        records.folder.log.read_text()
    report = records.folder.report.read_text()
    assert "Slots without a candidate: 1 failed; rounds/" in report
    assert "1 slot of search: exited with 1" in report, "an agent may fail in every round"


def test_best_without_a_headline_is_shown_against_the_best_before_it(tmp_path: Path) -> None:
    text = record_later_keep(tmp_path, headline=False)["performance.md"]
    best = text.split("## Best by config class")[1].split("## Stop")[0]
    assert "against the best before it, not measured against the baseline yet" in best
    assert "| class | the best before it | best | gain | % of roofline |" in best
    assert "| tall | 10.000 us | 2.000 us | 5.00x | 21% |" in best and "slower" not in best


def test_round_with_two_keeps_is_drawn_at_the_best_after_both() -> None:
    """The last keep is measured against the first, not against the best before the round."""
    chart = charts.progress([
        ProgressPoint(round=1, outcome="baseline", best=1.0, tried=None, title="1"),
        ProgressPoint(round=2, outcome="keep", best=3.0, tried=1.5, title="2"),
        ProgressPoint(round=3, outcome="tie", best=3.0, tried=1.0, title="3")])
    assert chart is not None
    kept, tie = (shape for shape in chart.shapes if shape.title)
    assert kept.at["y"] == tie.at["y"]


def test_keep_on_top_of_another_is_marked(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT, speedup=2.0)
    case.keep(writer, records.folder, 2, "c2", LATER, speedup=1.5)
    writer.end_round("rms", 2, outcome="keep", best_speedup=3.0, summary="2 kept")
    records.write_all(Reader(tmp_path))
    [row] = [line for line in records.folder.trend.read_text().splitlines()
             if line.startswith("| 2 | ACCEPTED")]
    assert "; in addition to the earlier keeps of its round | 3.00x |" in row


def test_program_without_time_to_run_is_reported(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT)
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.5, summary="1 kept")
    why = "not run: the time limit was 5 s and one run takes up to 8 s"
    writer.event("rms", NOT_RUN, KEPT, commit=KEPT[:12], message=why)
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(Reader(tmp_path))
    for file in (records.folder.log, records.folder.report, records.folder.page):
        assert why in file.read_text() and "End to end" in file.read_text(), file
    case.end_to_end(writer, 1.1)  # another engine had time to run it
    records.write_all(Reader(tmp_path))
    assert why in records.folder.log.read_text() and why not in records.folder.report.read_text()
