"""Guards the headline of a verdict: a withheld or rejected result is not just "not measured"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.verdict import Finding, Verdict
from kopt_tui.cli.output import print_verdict
from kopt_tui.cli.text_lines import wrapped
from kopt_tui.snapshot import verdict_words


@pytest.mark.parametrize(("findings", "headline"), [
    ((), "✓ correct, not measured"),
    ((Finding(rule="clock", severity="note", detail="small"),), "✓ correct, not measured"),
    ((Finding(rule="incumbent-floor", severity="flag", detail="it does no work"),),
     "✓ correct, not compared: it does no work"),
    ((Finding(rule="physical-floor", severity="reject", detail="the latency is withheld"),),
     "✗ correct, but rejected: the latency is withheld")])
def test_headline_states_why_nothing_was_measured(
        findings: tuple[Finding, ...], headline: str) -> None:
    verdict = Verdict(valid=True, correct=True, audit=findings)
    assert verdict_words.describe(verdict).headline == headline


def test_correct_says_what_judged_the_results() -> None:
    verdict = Verdict(valid=True, correct=True, latency_us=2.0, latency_kind="reported")
    assert verdict_words.errors(verdict) == "by the benchmark's own check"
    assert verdict_words.errors(replace(verdict, latency_kind="measured-cpu", max_rel_err=1e-6)) \
        == "relative error 1e-06"


def test_findings_and_notes_are_printed_without_control_characters(
        capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(Verdict(valid=True, correct=True, notes=("a \x1b[31mnote",), audit=(
        Finding(rule="clock", severity="flag", detail="slow\x07 clock"),)), "verdict 3: ")
    assert capsys.readouterr().out == \
        "verdict 3: ✓ correct, not measured\n! flag: slow clock\n- a note\n"


def test_lines_break_between_words_and_not_in_commands() -> None:
    text = "  waits for you: 80fd0d491020 is above 2x (kopt approve 80fd0d491020)"
    assert wrapped(text, 50, 4) == [
        "  waits for you: 80fd0d491020 is above 2x", "    (kopt approve 80fd0d491020)"]
    assert wrapped(text, None, 4) == [text]
    assert wrapped("x" * 60 + " y", 50, 2) == ["x" * 60, "  y"]
