"""Tests the history of each config class: its baseline, then its time after every keep."""

from __future__ import annotations

import json
import math
from pathlib import Path

from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.records.writer import Records
from harness.verdict import Row
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.page_case import rows
from tests.support.dashboards.records_case import KEPT
from tests.support.programs.command_line import kopt

SECOND = "l" * 40
HEAD = ("round", "commit", "class", "time", "against the last best", "against the baseline")


def row(name: str, before: float, after: float, outcome: str = "faster") -> Row:
    return Row(config_class=name, correct=True, core=name == "tall", latency_us=after,
               incumbent_us=before, log_ratio=math.log(before / after), outcome=outcome)  # type: ignore[arg-type]


def record_keep(writer: Writer, records: Records, n: int, name: str, commit: str,
                tall: tuple[float, float], odd: tuple[float, float], *,
                measured: bool = True) -> None:
    """Record a round with a keep; `tall`, `odd`: the class's times before and after the keep."""
    writer.start_round(samples.round_(n))
    case.keep(writer, records.folder, n, name, commit,
              rows=(row("tall", *tall), row("odd", *odd, "tie")))
    if measured:
        case.headline(writer, commit, 1.5, rows=(row("tall", 10.0, tall[1]),
                                                 row("odd", 4.0, odd[1], "tie")))
    writer.end_round("rms", n, outcome="keep", best_speedup=1.5, summary="1 keep")


def campaign(workspace: Path) -> tuple[Records, Writer]:
    """Record two kept rounds with a regression between them, and the stop."""
    records, writer = case.begin(workspace)
    record_keep(writer, records, 2, "c1", KEPT, (10.0, 5.0), (4.0, 4.0))
    case.lose(writer, records.folder, 3, "c3")
    record_keep(writer, records, 4, "c4", SECOND, (5.0, 4.0), (4.0, 3.2))
    writer.event("rms", "campaign.stop", SECOND, reason="enough")
    records.write_all(Reader(workspace))
    return records, writer


EXPECTED = [
    ("1", "b0", "tall (core)", "10.000 us", "", "1.00x"),
    ("2", "k" * 12, "tall (core)", "5.000 us", "2.00x", "2.00x"),
    ("4", "l" * 12, "tall (core)", "4.000 us", "1.25x (25.0% faster)", "2.50x"),
    ("1", "b0", "odd (core)", "4.000 us", "", "1.00x"),
    ("2", "k" * 12, "odd", "4.000 us", "1.00x", "1.00x"),
    ("4", "l" * 12, "odd", "3.200 us", "1.25x (25.0% faster)", "1.25x (25.0% faster)"),
]


def test_trend_has_line_per_class_below_each_kept_round(tmp_path: Path) -> None:
    records, _ = campaign(tmp_path)
    found = rows(records.folder.trend.read_text())
    assert [row["round"] for row in found] == list("111222" + "3" + "444")
    assert [(row["what"], row["best candidate"], row["against the last best"],
             row["best against baseline"], row["finding"])
            for row in found if row["status"] == "class"] == [
        ("tall (core)", "10.000 us", "", "1.00x", ""),
        ("odd (core)", "4.000 us", "", "1.00x", ""),
        ("tall (core)", "5.000 us", "2.00x", "2.00x", "faster"),
        ("odd", "4.000 us", "1.00x", "1.00x", "tie"),
        ("tall (core)", "4.000 us", "1.25x (25.0% faster)", "2.50x", "faster"),
        ("odd", "3.200 us", "1.25x (25.0% faster)", "1.25x (25.0% faster)", "tie")]


def test_trend_only_grows_after_a_late_approval(tmp_path: Path) -> None:
    records, writer = campaign(tmp_path)
    before = records.folder.trend.read_bytes()
    case.keep(writer, records.folder, 4, "late", "m" * 40, actor="ann",
              rows=(row("tall", 4.0, 2.0),))
    case.headline(writer, "m" * 40, 5.0, rows=(row("tall", 10.0, 2.0),))
    case.lose(writer, records.folder, 5, "c5")
    records.write_all(Reader(tmp_path))
    after = records.folder.trend.read_bytes()
    assert after.startswith(before)
    added = rows("| round | status | what | a | b | c | d |\n" + after[len(before):].decode())
    assert [(row["round"], row["status"]) for row in added] == [
        ("4", "ACCEPTED"), ("4", "class"), ("5", "ROLLBACK (regression)")]


def test_report_has_history_of_each_class(tmp_path: Path) -> None:
    records, _ = campaign(tmp_path)
    report = records.folder.report.read_text()
    text = report.split("## History by config class")[1].split("\n## ")[0]
    assert [tuple(row.values()) for row in rows(text)] == [
        ("---",) * 6, *((n, f"`{commit}`", *rest) for n, commit, *rest in EXPECTED)]
    assert tuple(rows(text)[0]) == HEAD
    page = records.folder.page.read_text()
    assert "History by config class" in page and "2.50x" in page


def test_rolled_back_commit_is_marked(tmp_path: Path) -> None:
    records, writer = campaign(tmp_path)
    writer.event("rms", "rollback", KEPT, round=4, before=SECOND, commit=KEPT, reason="wrong",
                 told="back", undone=[SECOND])
    before = records.folder.trend.read_bytes()
    records.write_all(Reader(tmp_path))
    assert "`llllllllllll` (rolled back)" in records.folder.report.read_text()
    assert records.folder.trend.read_bytes() == before


def test_keep_not_measured_against_baseline_is_marked(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path)
    record_keep(writer, records, 2, "c1", KEPT, (10.0, 5.0), (4.0, 4.0), measured=False)
    records.write_all(Reader(tmp_path))
    classes = [row for row in rows(records.folder.trend.read_text()) if row["round"] == "2"][1:]
    assert [(row["what"], row["against the last best"], row["best against baseline"])
            for row in classes] == [("tall (core)", "2.00x", "not measured"),
                                 ("odd", "1.00x", "not measured")]


def test_campaign_without_keep_has_no_history(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path)
    writer.event("rms", "campaign.stop", "b0", reason="enough")
    records.write_all(Reader(tmp_path))
    assert "History by config class" not in records.folder.report.read_text()
    assert "History by config class" not in records.folder.page.read_text()


def test_kopt_show_has_scopes_and_class_history(tmp_path: Path) -> None:
    campaign(tmp_path)
    shown = kopt("show", workspace=tmp_path).stdout
    lines = shown.split("\nclasses\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "4", "1", "2", "4"]
    assert "2.50x" in lines[3]
    details = json.loads(kopt("show", "rms", "--json", workspace=tmp_path).stdout)
    assert details["rounds"][0]["scope"] == "all" and details["classes"][2] == {
        "round": 4, "commit": SECOND, "config_class": "tall", "core": True, "latency_us": 4.0,
        "against_last_best": math.log(1.25), "against_baseline": math.log(2.5),
        "words_last_best": "1.25x (25.0% faster)", "words_baseline": "2.50x",
        "outcome": "faster"}
