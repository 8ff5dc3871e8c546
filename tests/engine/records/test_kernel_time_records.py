"""The files for people show GPU kernel time beside the time of calls, or that it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.history.campaign_view import read_with_manifest
from engine.journal.read import Reader
from engine.records.report.campaign_report import markdown
from harness.verdict import NO_PROFILER, Evidence, Finding, Row
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.page_case import rows
from tests.support.dashboards.records_case import KEPT


def test_gpu_kernel_time_and_profiled_kernel_are_shown(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT, latency_kind="measured-gpu", latency_us=118.4,
              evidence=(Evidence(kind="kernels", detail=(
                  "tall: candidate pa_fwd<int, 4> 118.40 us, 1 more; incumbent pa 142.80 us")),))
    records.write_all(Reader(tmp_path))
    record = rows(records.folder.performance.read_text())[1]
    assert (record["call time"], record["GPU time"]) == ("", "118.400 us")
    assert record["kernel"] == r"pa_fwd\<int, 4>"


def class_row(**fields: float) -> Row:
    return Row(config_class="tall", correct=True, log_ratio=0.3, **fields)


@pytest.mark.parametrize(("by_kernel", "row", "call", "gpu", "column"), [
    (True, class_row(latency_us=20.0, incumbent_us=27.0, other_us=50.0, incumbent_other_us=70.0),
     "50.000 us", "20.000 us", "call time, before -> after"),
    (False, class_row(latency_us=50.0, incumbent_us=70.0, other_us=20.0, incumbent_other_us=27.0),
     "50.000 us", "20.000 us", "GPU time, before -> after")])
def test_benchmarks_call_time_and_kernel_time_are_columns(
        by_kernel: bool, row: Row, call: str, gpu: str, column: str, tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    fields = {"latency_kind": "reported", "latency_us": row.latency_us, "rows": (row,),
              "by_kernel_time": by_kernel}
    case.keep(writer, records.folder, 2, "c1", KEPT, **fields)
    case.headline(writer, KEPT, 1.35, **fields)
    records.write_all(Reader(tmp_path))
    text = records.folder.performance.read_text()
    kept = rows(text)[1]
    assert (kept["call time"], kept["GPU time"]) == (call, gpu)
    [best] = rows(text.split("## Best by config class")[1])
    other, incumbent = (row.other_us or 0.0), (row.incumbent_other_us or 0.0)
    assert best[column] == f"{incumbent:.3f} -> {other:.3f} us"
    assert ("GPU kernel time" in text) is by_kernel


@pytest.mark.parametrize(("before_us", "after_us", "shown"), [
    (300.0, 400.0, True), (300.0, 290.0, True), (300.0, 230.0, False)])
def test_report_states_the_time_of_calls_that_gained_much_less_than_their_kernels(
        before_us: float, after_us: float, shown: bool, tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    fields = {"latency_kind": "measured-gpu", "latency_us": 20.0, "rows": (class_row(
        latency_us=20.0, incumbent_us=27.0, other_us=after_us, incumbent_other_us=before_us),)}
    case.keep(writer, records.folder, 2, "c1", KEPT, **fields)
    case.headline(writer, KEPT, 1.35, **fields)
    reader = Reader(tmp_path)
    campaign = reader.campaign("rms")
    assert campaign is not None
    report = markdown(read_with_manifest(reader, campaign))
    text = f"a call from Python takes {after_us:g} us, before {before_us:g} us: launches take"
    assert (text in report) is shown


def test_missing_kernel_time_is_named_in_the_table(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT, latency_kind="reported", audit=(
        Finding(rule=NO_PROFILER, severity="flag", detail="no tool"),))
    records.write_all(Reader(tmp_path))
    assert rows(records.folder.performance.read_text())[1]["GPU time"] == "not available"


@pytest.mark.parametrize("by_kernel", [True, False])
def test_regression_shows_both_times_and_the_class_whose_kernel_time_rose(by_kernel: bool,
                                                                          tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.add_candidate(writer, records.folder, "c1", 2, "less")
    kernel, call = (20.0, 16.0), (50.0, 60.0)
    scored, other = (kernel, call) if by_kernel else (call, kernel)
    row = Row(config_class="tall", correct=True, outcome="slower", latency_us=scored[0],
              incumbent_us=scored[1], other_us=other[0], incumbent_other_us=other[1],
              log_ratio=-0.22, note="its kernel time rose, although the benchmark reports +20.0%")
    number = writer.add_verdict("rms", "c1", samples.verdict(
        "c1", latency_kind="reported", latency_us=scored[0], speedup=scored[1] / scored[0],
        rows=(row,), by_kernel_time=by_kernel), purpose="verify")
    writer.add_decision("rms", "c1", "regression", "slower", round=2, actor="engine",
                        verdict=number)
    writer.end_round("rms", 2, outcome="regression", summary="a regression", best_speedup=1.0)
    writer.event("rms", "campaign.stop", KEPT, reason="1 regression", regressions=1)
    records.write_all(Reader(tmp_path))
    [regression] = rows(records.folder.performance.read_text().split("## Stop Summary")[1])
    assert regression["GPU time best -> candidate"] == "16.000 -> 20.000 us"
    assert regression["call time best -> candidate"] == "60.000 -> 50.000 us"
    assert regression["notes"].startswith(
        "tall 24.6% slower, its kernel time rose, although the benchmark reports")
