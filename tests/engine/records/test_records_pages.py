"""What the files for people hold: every field that seeds 002 and 003 name."""

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
from engine.split.languages import conditions
from engine.split.languages.c_language import C
from engine.split.languages.dispatch import Branch, DispatchBlock
from engine.split.languages.python_language import Python
from harness.benchmark.spec.command_target import CheckColumn
from harness.verdict import Evidence, Row, Verdict
from tests.engine.split import test_split_python
from tests.support import records_case as case
from tests.support import samples
from tests.support.records_case import BENCHMARK, KEPT, TEST
from tests.support.split_case import group

SPLIT = C().dispatcher(
    DispatchBlock(entry="pa", default="pa_0", at=0, branches=(Branch(
        condition=conditions.parse("block_size >= 1024 && mtp == 1"), kernel="pa_1",
        note="block_size=1024,mtp=1"),)), C().items("void pa_0(int block_size, int mtp) {}")[0])
Told = tuple[Records, Reader, Writer]
HOSTILE = "<img src=x onerror=alert(1)> | [click](http://evil) \x1b[2J`rm`\n# heading\n\n| a | b |"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    made, reader, writer = case.told(tmp_path_factory.mktemp("told"))
    made.agree(reader)
    return made, reader, writer


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a page's first table by the words of its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    head = _cells(lines[0])
    return [dict(zip(head, _cells(line), strict=True)) for line in lines[1:]
            if len(_cells(line)) == len(head)]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


# performance.md

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
    ("which bottleneck, and what was done", "why", r"unroll by 4 \(against b1\)"),
])
def test_a_kept_record_has(field: str, column: str, expected: str, told: Told) -> None:
    """The fields that every kept record must include at least."""
    record = rows(told[0].folder.performance.read_text())[1]
    assert re.fullmatch(expected, record[column]), field


def test_the_results_table_holds_the_baseline_and_kept_gains_only(told: Told) -> None:
    """No failed, crashed or slower attempt; the Stop Summary stands apart from the table."""
    text = told[0].folder.performance.read_text()
    assert [row["status"] for row in rows(text.split("\n## ")[0])] == ["baseline", "keep"]
    assert "idea / 3" not in text.split("## Stop Summary")[0]


def test_the_baseline_is_recorded_by_config_class(told: Told) -> None:
    """Correctness and performance of each class, not one overall average."""
    text = told[0].folder.performance.read_text().split("## Baseline by config class")[1]
    assert [(row["class"], row["correct"], row["latency"]) for row in rows(text.split("##")[0])] \
        == [("tall (core)", "yes", "10.000 us"), ("odd (core)", "yes", "4.000 us")]


def test_gpu_kernel_time_and_the_profiler_s_kernel_are_told(tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    case.keep(writer, made.folder, 2, "c1", KEPT, latency_kind="measured-gpu", latency_us=118.4,
              evidence=(Evidence(kind="kernels", detail=(
                  "tall: candidate pa_fwd<int, 4> 118.40 us, 1 more; incumbent pa 142.80 us")),))
    made.agree(Reader(tmp_path))
    record = rows(made.folder.performance.read_text())[1]
    assert (record["call time"], record["GPU time"]) == ("", "118.400 us")
    assert record["kernel"] == r"pa_fwd\<int, 4>"


def test_a_split_says_which_class_takes_which_kernel(tmp_path: Path) -> None:
    """Which configs keep the old kernel, which take the new one, and on what conditions: the kept
    source says it itself.
    """
    made, writer = case.begin(tmp_path)
    for n, (name, commit) in enumerate((("c1", KEPT), ("c2", "l" * 40)), 2):
        writer.start_round(samples.round_(n))
        case.keep(writer, made.folder, n, name, commit)
    made.setup.repo.read = lambda commit, path: (  # type: ignore[method-assign]
        b"" if commit == "b0" else SPLIT.encode())
    made.agree(Reader(tmp_path))
    text = made.folder.performance.read_text()
    assert [row["config class or condition"] for row in rows(text)] == [
        "all", "block_size >= 1024 && mtp == 1", "all"]
    _, sides = text.split("## Kernel split of pa in kkkkkkkkkkkk")
    assert "## Kernel split" not in sides
    assert [tuple(row.values()) for row in rows(sides)] == [
        ("new: pa_1", "block_size >= 1024 && mtp == 1", "block_size=1024,mtp=1"),
        ("old: pa_0", "otherwise", "all others")]


@pytest.mark.parametrize("language", ["python", "triton"])
def test_a_split_of_a_python_source_is_told_too(tmp_path: Path, language: str) -> None:
    """As kopt writes it there: in comments of the file's own language."""
    source = test_split_python.divided(
        test_split_python.KERNEL, group("context <= 64", {"context": 64}, TILE=4),
        language=Python(language))
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    case.keep(writer, made.folder, 2, "c1", KEPT)
    made.setup.repo.files = lambda commit: ["src/pa.py"]  # type: ignore[method-assign]
    made.setup.repo.read = lambda commit, path: (  # type: ignore[method-assign]
        b"" if commit == "b0" else source.encode())
    made.agree(Reader(tmp_path))
    text = made.folder.performance.read_text()
    assert [row["config class or condition"] for row in rows(text)] == ["all", r"context \<= 64"]
    _, sides = text.split("## Kernel split of total in kkkkkkkkkkkk")
    assert [(row["kernel"], row["condition"]) for row in rows(sides)] == [
        ("new: total_v1", r"context \<= 64"), ("old: total_base", "otherwise")]


# rounds/round-N/summary.md

@pytest.mark.parametrize(("field", "words"), [
    ("scope: global or one class", "- scope: all"), ("time", "- time: 1970-01-01 00:00 to 20"),
    ("what it cost", "- spent: 12 s, 3 trials"), ("the best so far", "- best so far: 1.54x"),
    ("one hypothesis a slot", "| fixed | fixed | search | idea 5 | b1 | regression |"),
    ("the change and the ruling",
     "| c5 | fixed | src/scale.c: int n = 1; -> int n = 4; | regression | slower | engine |"),
    ("benchmark command", f"- measured by: {BENCHMARK}"), ("test command", f"- tested by: {TEST}"),
    ("correctness", "- correct: yes, every class"),
    ("against the best", "- against the best before it: +25.0% time; 0.80x [0.79, 0.81]"),
    ("against the baseline", "- the best against the baseline after the round: 1.54x"),
    ("every class", "| tall | unmeasured | 10.031 us | 12.500 us | 0.80x (-19.7%) |"),
    ("the decision", "## Decision\n\nROLLED BACK"), ("the review", "## Stagnation: review"),
    ("its new directions", "New directions:\n- A\n- B\n- C\n"), ("the regression", "## Regression"),
    ("what was expected", "- expected: idea | 5"), ("what was seen", "- seen: 0.80x [0.79, 0.81]"),
    ("the transfer check", "## Real-training transfer check\n\n- candidate: c5"),
])
def test_a_round_that_was_rolled_back_tells(field: str, words: str, told: Told) -> None:
    assert words in (told[0].folder.round(5) / "summary.md").read_text(), field


@pytest.mark.parametrize(("field", "words"), [
    ("outcome", "- outcome: keep"), ("the decision", "## Decision\n\nACCEPTED"),
    ("the commit and why", "- kkkkkkkkkkkk: unroll by 4 (against b1): 1.50x"),
    ("bottlenecks", "| b2.1 | scale_kernel | tall | memory | 41 % of roofline | d | move less |"),
    ("what was seen besides", "- launch: tall: 2 launches"),
    ("the gain by class", "| tall | faster | 9.992 us | 6.500 us | 1.54x (+53.7%) |"),
    ("the transfer's decision", "- decision: ACCEPT-as-real (kernel only)"),
    ("next direction", "## Next direction\n\n- memory in tall: move less"),
])
def test_a_round_that_was_kept_tells(field: str, words: str, told: Told) -> None:
    assert words in (told[0].folder.round(2) / "summary.md").read_text(), field


@pytest.mark.parametrize("words", [
    "## Hypothesis\n\nNone: the baseline", "## Change\n\nNone", "## Decision\n\nBASELINE",
    "| tall (core) | yes | 10.000 us |", "- shown: the baseline",
    "## Real-training transfer check\n\n- nothing to check"])
def test_the_baseline_s_round_tells(words: str, told: Told) -> None:
    assert words in (told[0].folder.round(1) / "summary.md").read_text()


def test_every_round_has_a_summary_a_snapshot_and_a_transfer_check(told: Told) -> None:
    for n in range(1, 9):
        folder = told[0].folder.round(n)
        assert "## Real-training transfer check" in (folder / "summary.md").read_text()
        assert (folder / "kernel_snapshot" / "scale.c").is_file()


# logs

@pytest.mark.parametrize(("field", "words"), [
    ("target, language, backend, GPU", "- language: c; backend: c\n- GPU: cpu (cpu)"),
    ("campaign and start", "- campaign: rms"), ("the commands", f"- measured by: {BENCHMARK}"),
    ("the baseline by class", "| tall (core) | yes | 10.000 us |"),
    ("a round's hypothesis", "- hypothesis: unroll by 4\n  - changes: src/scale.c: int n"),
    ("its result and test", "  - result: -33.3% time; 1.50x [1.46, 1.54]; test PASS\n"),
    ("its decision", "  - decision: keep: 1.50x"), ("where more is", "rounds/round-2/summary.md"),
    ("the final report", "## Final Report\n\n- result: 1.54x [1.49, 1.59] against the baseline"),
    ("accepted and rolled back", "- rounds: 7, of which 1 kept something and 6 were rolled back"),
    ("effective directions", "### What worked\n\n- 1.50x: unroll by 4"),
    ("ineffective directions", "### What did not help\n\n- idea | 3: regression in round 3"),
    ("three next steps", "### What to try next\n\n1. A\n2. B\n3. C\n"),
    ("the audit", "### Real-training applicability audit"),
])
def test_the_log_tells(field: str, words: str, told: Told) -> None:
    assert words in told[0].folder.log.read_text(), field


def test_the_trend_has_a_line_a_round_and_accepted_scores_never_fall(told: Told) -> None:
    found = [row for row in rows(told[0].folder.trend.read_text()) if row["status"] != "class"]
    assert [row["round"] for row in found] == [str(n) for n in range(1, 9)]
    assert [row["status"] for row in found] == \
        ["BASELINE", "ACCEPTED", *["ROLLBACK (regression)"] * 6]
    best = [float(row["best against baseline"].rstrip("x")) for row in found]
    assert best == sorted(best)
    assert found[2]["what"] == "idea / 3" and found[2]["finding"] == "slower"


@pytest.mark.parametrize(("target", "test", "said"), [
    (TargetSpec(), "", "the comparison with the reference"),
    (TargetSpec(), TEST, f"{TEST}; the comparison with the reference"),
    (TargetSpec(kind="command", check="err == 0"), "", "the benchmark's own check: err == 0"),
    (TargetSpec(kind="command", check=CheckColumn(column="ok", rule="PASS|OK")), "",
     "the benchmark's own check: ok PASS|OK"),
    (TargetSpec(kind="command", check="err == 0"), TEST,
     f"{TEST}; the benchmark's own check: err == 0"),
])
def test_what_tests_candidates_is_told_as_it_is(tmp_path: Path, target: TargetSpec, test: str,
                                                said: str) -> None:
    """A benchmark of the project's own has no reference of kopt's beside it."""
    made, _ = case.begin(tmp_path)
    made.setup.manifest = msgspec.structs.replace(  # type: ignore[misc]
        made.setup.manifest, target=target, test_command=test)
    made.agree(Reader(tmp_path))
    for path in (made.folder.log, made.folder.round(1) / "summary.md"):
        assert f"- tested by: {said}\n" in path.read_text()


def test_what_was_read_of_earlier_campaigns_is_in_the_log(tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    writer.event("rms", "tips.read", path="historical_experience/cpu/rmsnorm/c/tips.md",
                 lessons=["tiles of 64 spill"], left_out=2)
    made.agree(Reader(tmp_path))
    assert "tips.md: 1 lesson; 2 older ones were left out\n- tiles of 64 spill" in \
        made.folder.log.read_text()


def test_end_to_end_runs_are_in_the_log_and_the_report(tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    case.end_to_end(writer, 0.97)
    writer.event("rms", "campaign.stop", "b0", reason="enough")
    made.agree(Reader(tmp_path))
    for file in (made.folder.log, made.folder.report, made.folder.page):
        text = file.read_text()
        assert "python serve.py" in text and "three runs in turn" in text
        assert "0.97x [0.96, 0.98]: what the kernel gains, the program loses" in text


# results.tsv

def test_results_hold_the_baseline_every_trial_and_every_verdict(told: Told) -> None:
    head, *lines = told[0].folder.results.read_text().splitlines()
    found = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert [(row["experiment"], row["tag"], row["correctness"]) for row in found] == [
        ("baseline.baseline", "baseline", "PASS"), ("2.fixed.0", "tried", "PASS"),
        ("2.fixed.1", "revert", "FAIL"), ("2.fixed.c1", "kept", "PASS"),
        (f"headline.{KEPT[:12]}", "headline", "PASS"),
        *((f"{n}.fixed.c{n}", "tried", "PASS") for n in range(3, 9))]
    assert found[3]["kernel_id"] == KEPT[:12] and "unroll by 4" in found[3]["description"]


def test_what_a_killed_engine_s_round_tries_again_is_there_once(tmp_path: Path) -> None:
    made, reader, writer = case.told(tmp_path)
    made.agree(reader)
    before = made.folder.results.read_text()
    made.trials(2, cast(Any, SimpleNamespace(slot="fixed")), case.trials(), writer)
    assert made.folder.results.read_text() != before
    made.agree(reader)
    assert made.folder.results.read_text() == before


@pytest.mark.parametrize(("verdict", "tag", "correctness"), [
    ({"valid": True}, "revert", "FAIL"), ({"valid": False}, "rejected", "REJECTED")])
def test_a_reject_is_told_from_a_wrong_result(verdict: dict[str, bool], tag: str,
                                              correctness: str, tmp_path: Path) -> None:
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    case.reject(writer, made.folder, 2, "c2", "wrong result: class tall", **verdict)
    made.agree(Reader(tmp_path))
    last = made.folder.results.read_text().splitlines()[-1].split("\t")
    assert (last[1], last[6]) == (tag, correctness)


# Words of others.

def test_no_worker_s_words_break_out(tmp_path: Path) -> None:
    """Names, hypotheses and reasons are data in every file: no tag, link, heading or table."""
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    writer.put_slots([samples.slot("fixed", round=2, hypothesis=HOSTILE, bottleneck=HOSTILE)])
    row = Row(config_class=HOSTILE, correct=True, latency_us=9.0, log_ratio=0.1, note=HOSTILE)
    case.keep(writer, made.folder, 2, "c1", KEPT, idea=HOSTILE, rows=(row,), actor=HOSTILE,
              evidence=(Evidence(kind="kernels", detail=HOSTILE),))
    writer.end_round("rms", 2, outcome="keep", best_speedup=1.5, summary=HOSTILE)
    writer.event("rms", "campaign.stop", KEPT, reason=HOSTILE)
    made.agree(Reader(tmp_path))
    folder: Folder = made.folder
    for file in (folder.performance, folder.log, folder.trend, folder.round(2) / "summary.md"):
        text = file.read_text()
        assert "\x1b" not in text and "](http" not in text
        assert re.search(r"(?<!\\)<img", text) is None, file.name
        assert "\n# heading" not in text and "\n| a | b |" not in text


def test_a_line_and_a_table_are_harmless() -> None:
    assert line("a < b](c") == r"a \< b]\(c" and line("one\n\ntwo\t three") == "one two three"
    assert table(("a|b",), [("c\nd",)]) == "| a/b |\n|---|\n| c d |\n"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", stamp(1_800_000_000.0))


def test_a_verdict_of_no_candidate_in_the_journal_is_told_all_the_same(tmp_path: Path) -> None:
    """A candidate may have been pruned from the journal's candidates by an older version."""
    made, writer = case.begin(tmp_path)
    writer.start_round(samples.round_(2))
    one: Verdict = samples.verdict("ghost", speedup=0.9)
    number = writer.add_verdict("rms", "ghost", one, purpose="verify")
    writer.add_decision("rms", "ghost", "tie", "nothing", round=2, actor="engine", verdict=number)
    writer.end_round("rms", 2, outcome="tie", summary="1 candidates: 1 tie")
    made.agree(Reader(tmp_path))
    assert "- hypothesis: ghost" in made.folder.log.read_text()
