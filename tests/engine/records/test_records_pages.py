"""The files for people have every field that they must have."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from engine.campaign.folder import Folder
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.manifest.schema import TargetSpec
from engine.markdown import line, stamp, table
from engine.records.writer import Records
from engine.split.languages.python_language import Python
from harness.benchmark.spec.command_target import CheckColumn
from harness.verdict import Evidence, Row, Verdict
from tests.support.dashboards import records_case as case
from tests.support.dashboards import samples
from tests.support.dashboards.page_case import SPLIT, rows
from tests.support.dashboards.records_case import BENCHMARK, KEPT, TEST
from tests.support.searches import split_python_case
from tests.support.searches.split_case import group

Recorded = tuple[Records, Reader, Writer]
HOSTILE = "<img src=x onerror=alert(1)> | [click](http://evil) \x1b[2J`rm`\n# heading\n\n| a | b |"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    records, reader, writer = case.record_campaign(tmp_path_factory.mktemp("campaign"))
    records.write_all(reader)
    return records, reader, writer


@pytest.mark.parametrize(("field", "column", "expected"), [
    ("date", "date", r"20\d\d-\d\d-\d\d \d\d:\d\d"),
    ("commit", "commit", "k{12}"),
    ("status: baseline or keep", "status", "keep"),
    ("benchmark command", "benchmark command", re.escape(BENCHMARK)),
    ("target config class or dispatch condition", "config class or condition", "all"),
    ("kernel name", "kernel", "scale_kernel"),
    ("the benchmark's own metric", "call time", r"10\.000 us"),
    ("GPU kernel time, where that was the scored one", "GPU time", ""),
    ("percentage relative to the previous best", "against the last best", r"-33\.3% time; 1.50x.*"),
    ("which bottleneck, and what was done", "why",
     r"int n = 1; -> int n = 4 \(unroll by 4\).*aimed at b1"),
])
def test_kept_record_has_every_required_field(field: str, column: str, expected: str,
                                              campaign: Recorded) -> None:
    """These are the fields that every kept record must have."""
    record = rows(campaign[0].folder.performance.read_text())[1]
    assert re.fullmatch(expected, record[column]), field


def test_results_table_has_only_baseline_and_keeps(campaign: Recorded) -> None:
    """It has no failed, crashed or slower attempt; the Stop Summary is outside the table."""
    text = campaign[0].folder.performance.read_text()
    assert [row["status"] for row in rows(text.split("\n## ")[0])] == ["baseline", "keep"]
    assert "idea / 3" not in text.split("## Stop Summary")[0]


def test_baseline_is_recorded_by_config_class(campaign: Recorded) -> None:
    """Correctness and time are recorded for each class, not as one average."""
    text = campaign[0].folder.performance.read_text().split("## Baseline by config class")[1]
    assert [(row["class"], row["correct"], row["latency"]) for row in rows(text.split("##")[0])] \
        == [("tall (core)", "yes", "10.000 us"), ("odd (core)", "yes", "4.000 us")]


def test_split_shows_which_class_takes_which_kernel(tmp_path: Path) -> None:
    """The kept source itself records the classes and conditions of the old and the new kernel."""
    records, writer = case.begin(tmp_path)
    for n, (name, commit) in enumerate((("c1", KEPT), ("c2", "l" * 40)), 2):
        writer.start_round(samples.round_(n))
        case.keep(writer, records.folder, n, name, commit)
    records.setup.repo.read = lambda commit, path: (  # type: ignore[method-assign]
        b"" if commit == "b0" else SPLIT.encode())
    records.write_all(Reader(tmp_path))
    text = records.folder.performance.read_text()
    assert [row["config class or condition"] for row in rows(text)] == [
        "all", "block_size >= 1024 && mtp == 1", "all"]
    _, table_text = text.split("## Kernel split of pa in kkkkkkkkkkkk")
    assert "## Kernel split" not in table_text
    assert [tuple(row.values()) for row in rows(table_text)] == [
        ("new: pa_1", "block_size >= 1024 && mtp == 1", "block_size=1024,mtp=1"),
        ("old: pa_0", "otherwise", "all others")]


@pytest.mark.parametrize("language", ["python", "triton"])
def test_split_of_python_source_is_shown(tmp_path: Path, language: str) -> None:
    """kopt writes the split in comments of the source's own language."""
    source = split_python_case.divided(
        split_python_case.KERNEL, group("context <= 64", {"context": 64}, TILE=4),
        language=Python(language))
    records, writer = case.begin(tmp_path, 2)
    case.keep(writer, records.folder, 2, "c1", KEPT)
    records.setup.repo.files = lambda commit: ["src/pa.py"]  # type: ignore[method-assign]
    records.setup.repo.read = lambda commit, path: (  # type: ignore[method-assign]
        b"" if commit == "b0" else source.encode())
    records.write_all(Reader(tmp_path))
    text = records.folder.performance.read_text()
    assert [row["config class or condition"] for row in rows(text)] == ["all", r"context \<= 64"]
    _, table_text = text.split("## Kernel split of total in kkkkkkkkkkkk")
    assert [(row["kernel"], row["condition"]) for row in rows(table_text)] == [
        ("new: total_v1", r"context \<= 64"), ("old: total_base", "otherwise")]
    writer.event("rms", "campaign.stop", KEPT, reason="enough")
    records.write_all(Reader(tmp_path))
    assert r"] for context \<= 64, call time" in records.folder.report.read_text()


@pytest.mark.parametrize(("field", "words"), [
    ("scope: global or one class", "- scope: all"), ("time", "- time: 1970-01-01 00:00 to 20"),
    ("what it cost", "- spent: 12 s, 3 trials"), ("the best so far", "- best so far: 1.54x"),
    ("one hypothesis a slot", "| fixed | fixed | search | idea / 5 | b1 | regression |"),
    ("the change and the ruling",
     "| c5 | fixed | src/scale.c: int n = 1; -> int n = 4; | regression | slower | engine |"),
    ("benchmark command", f"- measured by: {BENCHMARK}"), ("test command", f"- tested by: {TEST}"),
    ("correctness", "- correct: yes, every class"),
    ("against the best", "- against the best before it: +25.0% time; 0.80x [0.79, 0.81]"),
    ("every class", "| tall | unmeasured | 10.031 us | 12.500 us | 0.80x (24.6% slower) |"),
    ("the decision", "## Decision\n\nROLLED BACK"), ("the review", "## Stagnation: review"),
    ("its new directions", "New directions:\n- A\n- B\n- C\n"), ("the regression", "## Regression"),
    ("what was expected", "- expected: idea | 5"), ("what was seen", "- seen: 0.80x [0.79, 0.81]"),
    ("the transfer check", "## Real-training transfer check\n\n- candidate: c5"),
])
def test_summary_of_rolled_back_round_has_every_required_field(field: str, words: str,
                                                               campaign: Recorded) -> None:
    assert words in (campaign[0].folder.round(5) / "summary.md").read_text(), field


@pytest.mark.parametrize(("field", "words"), [
    ("outcome", "- outcome: keep"), ("the decision", "## Decision\n\nACCEPTED"),
    ("the commit and why", "(unroll by 4)"),
    ("bottlenecks", "| b2.1 | scale_kernel | tall | memory | 41 % of roofline | d | move less |"),
    ("what was seen besides", "- launch: tall: 2 launches"),
    ("the gain by class", "| tall | faster | 9.992 us | 6.500 us | 1.54x (53.7% faster) |"),
    ("the transfer's decision", "- decision: ACCEPT-as-real (kernel only)"),
    ("next direction", "## Next direction\n\n- memory in tall: move less"),
])
def test_summary_of_kept_round_has_every_required_field(field: str, words: str,
                                                        campaign: Recorded) -> None:
    assert words in (campaign[0].folder.round(2) / "summary.md").read_text(), field


@pytest.mark.parametrize("words", [
    "## Hypothesis\n\nNone: the baseline", "## Change\n\nNone", "## Decision\n\nBASELINE",
    "| tall (core) | yes | 10.000 us |", "- shown: the baseline",
    "## Real-training transfer check\n\n- nothing to check"])
def test_summary_of_baseline_has_every_required_section(words: str, campaign: Recorded) -> None:
    assert words in (campaign[0].folder.round(1) / "summary.md").read_text()


def test_every_round_has_summary_snapshot_and_transfer_check(campaign: Recorded) -> None:
    for n in range(1, 9):
        folder = campaign[0].folder.round(n)
        assert "## Real-training transfer check" in (folder / "summary.md").read_text()
        assert (folder / "kernel_snapshot" / "scale.c").is_file()


@pytest.mark.parametrize(("field", "words"), [
    ("target, language, backend, GPU", "- language: c; backend: c\n- GPU: cpu (cpu)"),
    ("campaign and start", "- campaign: rms"), ("the commands", f"- measured by: {BENCHMARK}"),
    ("the baseline by class", "| tall (core) | yes | 10.000 us |"),
    ("a round's hypothesis", "- hypothesis: unroll by 4\n  - changes: src/scale.c: int n"),
    ("its result and test", "  - result: -33.3% time; 1.50x [1.46, 1.54]; test PASS\n"),
    ("its decision", "  - decision: keep: 1.50x"), ("where more is", "rounds/round-2/summary.md"),
    ("the final report", "## Final Report\n\n- result: 1.54x [1.49, 1.59] against the baseline"),
    ("gains", "- rounds: 7, of which 1 brought a lasting gain and 6 did not"),
    ("effective directions", "### What worked\n\n- 1.50x: int n = 1; -> int n = 4 (unroll by 4)"),
    ("ineffective directions", "### What did not help\n\n- idea | 3: regression in round 3"),
    ("three next steps", "### What to try next\n\n1. A\n2. B\n3. C\n"),
    ("the audit", "### Real-training applicability audit"),
])
def test_log_has_every_required_field(field: str, words: str, campaign: Recorded) -> None:
    assert words in campaign[0].folder.log.read_text(), field


def test_trend_has_line_per_round_and_best_never_falls(campaign: Recorded) -> None:
    found = [row for row in rows(campaign[0].folder.trend.read_text()) if row["status"] != "class"]
    assert [row["round"] for row in found] == [str(n) for n in range(1, 9)]
    assert [row["status"] for row in found] == \
        ["BASELINE", "ACCEPTED", *["ROLLBACK (regression)"] * 6]
    best = [float(row["best against baseline"].rstrip("x")) for row in found]
    assert best == sorted(best)
    assert found[2]["what"] == "idea / 3" and found[2]["finding"] == "slower"


@pytest.mark.parametrize(("target", "test", "expected"), [
    (TargetSpec(), "", "the comparison with the reference"),
    (TargetSpec(), TEST, f"{TEST}; the comparison with the reference"),
    (TargetSpec(kind="command", check="err == 0"), "", "the benchmark's own check: err == 0"),
    (TargetSpec(kind="command", check=CheckColumn(column="ok", rule="PASS|OK")), "",
     "the benchmark's own check: ok PASS|OK"),
    (TargetSpec(kind="command", check="err == 0"), TEST,
     f"{TEST}; the benchmark's own check: err == 0"),
])
def test_records_state_how_candidates_are_tested(tmp_path: Path, target: TargetSpec, test: str,
                                                 expected: str) -> None:
    """A command target is checked by its benchmark, not against a reference."""
    records, _ = case.begin(tmp_path)
    records.setup.manifest = msgspec.structs.replace(  # type: ignore[misc]
        records.setup.manifest, target=target, test_command=test)
    records.write_all(Reader(tmp_path))
    for path in (records.folder.log, records.folder.round(1) / "summary.md"):
        assert f"- tested by: {expected}\n" in path.read_text()


def test_log_has_lessons_of_earlier_campaigns(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path)
    writer.event("rms", "tips.read", path="historical_experience/cpu/rmsnorm/c/tips.md",
                 lessons=["tiles of 64 spill"], left_out=2)
    records.write_all(Reader(tmp_path))
    assert "tips.md: 1 lesson; 2 older ones were left out\n- tiles of 64 spill" in \
        records.folder.log.read_text()


def test_log_and_report_have_end_to_end_runs(tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path)
    case.end_to_end(writer, 0.97)
    writer.event("rms", "campaign.stop", "b0", reason="enough")
    records.write_all(Reader(tmp_path))
    for file in (records.folder.log, records.folder.report, records.folder.page):
        text = file.read_text()
        assert "python serve.py" in text and "three runs in turn" in text
        assert "0.97x [0.96, 0.98]: the program is slower, although the kernel is faster" in text


def test_results_have_baseline_every_trial_and_every_verdict(campaign: Recorded) -> None:
    head, *lines = campaign[0].folder.results.read_text().splitlines()
    found = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert [(row["experiment"], row["tag"], row["correctness"]) for row in found] == [
        ("baseline.baseline", "baseline", "PASS"), ("2.fixed.0", "tried", "PASS"),
        ("2.fixed.1", "revert", "FAIL"), ("2.fixed.c1", "kept", "PASS"),
        (f"headline.{KEPT[:12]}", "headline", "PASS"),
        *((f"{n}.fixed.c{n}", "tried", "PASS") for n in range(3, 9))]
    assert found[3]["kernel_id"] == KEPT[:12] and "unroll by 4" in found[3]["description"]


def test_trial_repeated_after_a_kill_is_listed_once(tmp_path: Path) -> None:
    records, reader, writer = case.record_campaign(tmp_path)
    records.write_all(reader)
    before = records.folder.results.read_text()
    records.trials(2, cast(Any, SimpleNamespace(slot="fixed")), case.trials(), writer)
    assert records.folder.results.read_text() != before
    records.write_all(reader)
    assert records.folder.results.read_text() == before


@pytest.mark.parametrize(("verdict", "tag", "correctness"), [
    ({"valid": True}, "revert", "FAIL"), ({"valid": False}, "rejected", "REJECTED")])
def test_results_tell_reject_from_wrong_result(verdict: dict[str, bool], tag: str,
                                               correctness: str, tmp_path: Path) -> None:
    records, writer = case.begin(tmp_path, 2)
    case.reject(writer, records.folder, 2, "c2", "wrong result: class tall", **verdict)
    records.write_all(Reader(tmp_path))
    last = records.folder.results.read_text().splitlines()[-1].split("\t")
    assert (last[1], last[6]) == (tag, correctness)


def test_text_from_outside_never_becomes_markup_in_files(tmp_path: Path) -> None:
    """Names, hypotheses and reasons never become a tag, link, heading or table."""
    records, writer = case.begin(tmp_path, 2)
    writer.put_slots([samples.slot("fixed", round=2, hypothesis=HOSTILE, bottleneck=HOSTILE)])
    row = Row(config_class=HOSTILE, correct=True, latency_us=9.0, log_ratio=0.1, note=HOSTILE)
    case.keep(writer, records.folder, 2, "c1", KEPT, idea=HOSTILE, rows=(row,), actor=HOSTILE,
              evidence=(Evidence(kind="kernels", detail=HOSTILE),))
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.5, summary=HOSTILE)
    writer.event("rms", "campaign.stop", KEPT, reason=HOSTILE)
    records.write_all(Reader(tmp_path))
    folder: Folder = records.folder
    for file in (folder.performance, folder.log, folder.trend, folder.round(2) / "summary.md"):
        text = file.read_text()
        assert "\x1b" not in text and "](http" not in text
        assert re.search(r"(?<!\\)<img", text) is None, file.name
        assert "\n# heading" not in text and "\n| a | b |" not in text


def test_line_and_table_escape_markup() -> None:
    assert line("a < b](c") == r"a \< b]\(c" and line("one\n\ntwo\t three") == "one two three"
    assert table(("a|b",), [("c\nd",)]) == "| a/b |\n|---|\n| c d |\n"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", stamp(1_800_000_000.0))


def test_verdict_without_candidate_is_logged(tmp_path: Path) -> None:
    """An older kopt may have pruned the candidate from the journal."""
    records, writer = case.begin(tmp_path, 2)
    verdict: Verdict = samples.verdict("ghost", speedup=0.9)
    number = writer.add_verdict("rms", "ghost", verdict, purpose="verify")
    writer.add_decision("rms", "ghost", "tie", "nothing", round=2, actor="engine", verdict=number)
    writer.end_round("rms", 2, outcome="tie", summary="1 candidates: 1 tie")
    records.write_all(Reader(tmp_path))
    assert "- hypothesis: ghost" in records.folder.log.read_text()
