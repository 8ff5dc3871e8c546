"""Tests a verdict's text: its first line states why a result was withheld or rejected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.planning import survey
from engine.records import measured
from harness.verdict import Finding, Row, Verdict
from kopt_tui.cli.output import print_verdict
from kopt_tui.cli.text_lines import wrapped
from kopt_tui.snapshot import verdict_words
from kopt_tui.widgets.classes_pane import class_lines


@pytest.mark.parametrize(("findings", "summary_line"), [
    ((), "✓ correct, not measured"),
    ((Finding(rule="clock", severity="note", detail="small"),), "✓ correct, not measured"),
    ((Finding(rule="incumbent-floor", severity="flag", detail="it does no work"),),
     "✓ correct, not compared: it does no work"),
    ((Finding(rule="physical-floor", severity="reject", detail="the latency is withheld"),),
     "✗ correct, but rejected: the latency is withheld")])
def test_summary_line_states_why_nothing_was_measured(
        findings: tuple[Finding, ...], summary_line: str) -> None:
    verdict = Verdict(valid=True, correct=True, audit=findings)
    assert verdict_words.describe(verdict).summary_line == summary_line


def test_correct_verdict_names_what_checked_the_results() -> None:
    verdict = Verdict(valid=True, correct=True, latency_us=2.0, latency_kind="reported")
    assert verdict_words.errors(verdict) == "by the benchmark's own check"
    assert verdict_words.errors(replace(verdict, latency_kind="measured-cpu", max_rel_err=1e-6)) \
        == "relative error 1e-06"


def test_latency_per_unit_of_work_names_the_unit() -> None:
    row = Row(config_class="all", correct=True, outcome="tie", latency_us=153e3, incumbent_us=2e5,
              log_ratio=0.1, low=-0.1, high=0.3, pairs=4, latency_per="GB")
    cells = verdict_words.class_cells(row)
    assert (cells["latency"], cells["incumbent"]) == ("153 ms/GB", "200 ms/GB")
    verdict = Verdict(valid=True, correct=True, latency_us=153e3, latency_kind="reported",
                      rows=(row,))
    assert verdict_words.latency(verdict) == "153 ms (reported per GB)"
    assert survey.describe_baseline(verdict) == "all 153 ms/GB"
    assert "153.000 ms/GB" in measured.classes(verdict)
    assert "200 ms/GB" in "".join(text for text, _ in class_lines((row,), 80)[1])


@pytest.mark.parametrize(("used", "text"), [
    (0.12, "12%"), (49148.0, "49,148x"), (4.9e39, "5e+39x")])
def test_used_error_budget_is_short(used: float, text: str) -> None:
    row = Row(config_class="all", correct=False, outcome="broken", error_budget_used=used)
    assert verdict_words.class_cells(row)["error budget"] == text


def test_findings_and_notes_are_printed_without_control_characters(
        capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(Verdict(valid=True, correct=True, notes=("a \x1b[31mnote",), audit=(
        Finding(rule="clock", severity="flag", detail="slow\x07 clock"),)), "verdict 3: ")
    assert capsys.readouterr().out == \
        "verdict 3: ✓ correct, not measured\n! flag: slow clock\n- a note\n"


def test_lines_break_between_words_but_not_inside_commands() -> None:
    text = "  waits for you: 80fd0d491020 is above 2x (kopt approve 80fd0d491020)"
    assert wrapped(text, 50, 4) == [
        "  waits for you: 80fd0d491020 is above 2x", "    (kopt approve 80fd0d491020)"]
    assert wrapped(text, None, 4) == [text]
    assert wrapped("x" * 60 + " y", 50, 2) == ["x" * 60, "  y"]
