"""Files for people name the classes that a verdict shows gained, not those that were aimed at."""

from __future__ import annotations

import pytest

from engine.journal.read import Reader
from tests.support.dashboards import records_case as case
from tests.support.dashboards.page_case import rows
from tests.support.dashboards.records_case import KEPT
from tests.support.searches import attribution_case


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Record a keep that was aimed at mtp=8 and gained in mtp=1; return the files by name."""
    workspace = tmp_path_factory.mktemp("w")
    records, writer = case.begin(workspace, 2)
    writer.put_bottlenecks("rms", 2, attribution_case.BOTTLENECKS)
    aimed = attribution_case.CANDIDATE
    case.keep(writer, records.folder, 2, "c1", KEPT, idea=aimed.hypothesis,
              bottleneck=aimed.bottleneck,
              rows=attribution_case.verdict(aimed=-0.001, tie=True).rows)
    writer.end_round("rms", 2, outcome="keep", best_speedup=None, summary="1 kept")
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(Reader(workspace))
    return {path.name: path.read_text() for path in records.folder.path.rglob("*.md")}


def test_performance_names_gained_class_and_missed_aim(files: dict[str, str]) -> None:
    kept = rows(files["performance.md"])[1]
    assert kept["config class or condition"] == "mtp=1"
    assert kept["why"] == (
        "int n = 1; -> int n = 4; gained mtp=1 20.0 us -> 10.0 us (memory: 10.0% -> "
        "20.0% of roofline); aimed at b2.1 compute in mtp=8 (18 % of roofline), where it did not "
        "gain (mtp=8 tie)")


@pytest.mark.parametrize("name", ["optimize.md", "report.md", "summary.md"])
def test_no_file_credits_the_class_that_did_not_gain(files: dict[str, str], name: str) -> None:
    assert "gained mtp=1" in files[name]
    assert "where it did not gain (mtp=8 tie)" in files[name] and "(against b2" not in files[name]


def test_lesson_is_whole_and_names_gained_class(files: dict[str, str]) -> None:
    lesson = next(line for line in files["optimize.md"].splitlines() if "helped:" in line)
    assert lesson == (
        "- helped: int n = 1; -> int n = 4; 1.50x [1.46, 1.54]; gained mtp=1 20.0 us "
        "-> 10.0 us (memory: 10.0% -> 20.0% of roofline); aimed at compute in mtp=8 (18 % of "
        "roofline), where it did not gain (mtp=8 tie)")
