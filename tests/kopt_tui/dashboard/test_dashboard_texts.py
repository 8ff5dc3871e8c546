"""The dashboard's texts, such as Markdown and patches, lose nothing when they are wrapped."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from engine.journal.records import Event
from engine.journal.rows import payload
from harness.verdict import BLIND_CHECK
from kopt_tui.snapshot import event_words, phrases
from kopt_tui.snapshot.snapshot import CampaignRow, StreamLine
from kopt_tui.widgets.about_pane import best_spans
from kopt_tui.widgets.patch_pane import patch_lines, wrapped
from kopt_tui.widgets.report_pane import markdown_lines
from kopt_tui.widgets.slots_pane import StreamPane
from kopt_tui.widgets.tones import Line
from tests.support.dashboards import samples
from tests.support.dashboards.dashboard_journal import CAMPAIGN, HOSTILE, PATCH

REPORT = """\
# rmsnorm on a card

**2.10x [2.05, 2.15]** as fast as the baseline; the best was measured against it directly twice.

- round 2, `7635ad4b`: a known good form of the op, which is a rather long thing to say here
  It attacks b2.1.

| class | speedup | why |
| --- | --- | --- |
| tall\\_one | 2.1x | because it reads every row once and keeps it in registers until the end |
| odd \\| even | 1.0x | |
"""


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def event(kind: str, ref: str = "", /, **facts: object) -> str:
    return event_words.event(Event(seq=1, campaign=CAMPAIGN, at=0.0, kind=kind, ref=ref,
                             payload=payload(facts)))


@pytest.mark.parametrize("width", range(20, 60))
def test_paragraph_is_broken_into_full_lines_only(width: int) -> None:
    lines = plain(markdown_lines("1. " + "ab " * 40 + "a " * 40 + "**bold** `code` end", width))
    assert all(line.strip() and cell_len(line) <= width for line in lines)
    assert all(cell_len(line) > width - 6 for line in lines[:-1])


@pytest.mark.parametrize("width", [40, 60, 120])
def test_markdown_fits_and_loses_no_word(width: int) -> None:
    lines = plain(markdown_lines(REPORT, width))
    assert all(cell_len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).split())
    for part in ("rmsnorm on a card", "2.10x [2.05, 2.15] as fast as the baseline",
                 "• round 2, 7635ad4b: a known good form", "It attacks b2.1.", "tall_one",
                 "odd | even"):
        assert part in text
    assert "**" not in text and "---" not in text


def test_escaped_backticks_are_characters_and_begin_no_code() -> None:
    """A report escapes the text of others, such as a reason that quotes a line of code."""
    lines = markdown_lines(r"state: declare one, such as \`\#define TILE 32\`, or `code`", 80)
    assert plain(lines) == [" state: declare one, such as `#define TILE 32`, or code"]


def test_patch_is_numbered_and_keeps_every_line() -> None:
    lines = patch_lines(PATCH, highlighted=False)
    assert plain(lines)[4].endswith("int64_t rows, int64_t cols, float eps)")
    assert plain(lines)[4].startswith("  14 ") and plain(lines)[-1] == "  32  }"
    assert [line[1][0] for line in lines if len(line) > 1].count("+") == 11
    assert plain(patch_lines(PATCH, highlighted=True)) == plain(lines)


@pytest.mark.parametrize("patch", ["", "@@", "@@ -1 +1 @@", "+++ b/x.c", "\\ No newline",
                                   "Binary files differ", "diff --git a b\n" * 3, HOSTILE])
def test_odd_patch_keeps_every_line(patch: str) -> None:
    for highlighted in (False, True):
        lines = patch_lines(patch, highlighted=highlighted)
        assert len(lines) == len([line for line in patch.split("\n") if line])


def test_wrapping_keeps_every_character() -> None:
    line: Line = (("   7 ", "dim"), ("+", "good"), ("日本語 and a long line of code", "plain"))
    parts = plain(wrapped(line, 16, 6))
    assert all(cell_len(part) <= 16 for part in parts)
    assert "".join(part.strip() for part in parts).replace(" ", "") == \
        "7+日本語andalonglineofcode"


def test_event_is_one_readable_line() -> None:
    assert event("verdict", "abcdef123456", slot="fixed", valid=True, correct=True, speedup=1.5,
                 low=1.4, high=1.6) == "verdict  abcdef12  fixed  1.50x [1.40, 1.60]"
    assert event("verdict", "abcdef123456", purpose="headline", valid=True, correct=True,
                 speedup=1.5, low=1.4, high=1.6) == "verdict  abcdef12  1.50x [1.40, 1.60]"
    interval_with_1 = "uncertain [0.78, 1.19]; slower at an error rate of 5 %: odd 13.3% slower"
    for reason, sign in ((interval_with_1, "~"), ("0.80x [0.78, 0.82]; odd uncertain", "▼"),
                         (f"no significant gain over all classes: {interval_with_1}", "~")):
        assert event("decision", "abcdef123456", slot="fixed", kind="regression",
                     reason=reason) == \
            f"decision  abcdef12  fixed  {sign} regression: {reason}"
    assert event("decision", "abcdef123456", slot="fixed", kind="tie", reason="too close") == \
        "decision  abcdef12  fixed  = tie: too close"
    assert event("campaign.state", CAMPAIGN, state="running", phase="") == "campaign state  running"
    assert event("bottlenecks", "2", top=[{"limiter": "memory"}, {"limiter": "memory"}]) == \
        "bottlenecks  memory"
    assert event("trials", "fixed", count=2) == \
        "trials  fixed  2 screened"
    assert event("campaign.stop", models={"attempts": 3, "unpriced": 0, "cost_usd": 0.00576}) == \
        "campaign stop  models: attempts 3, cost_usd 0.00576"
    assert event("control.requested", limits={"budget.wall_s": "9"}) == \
        "control requested  limits: budget.wall_s 9"
    assert "\x1b" not in event("log", message=HOSTILE)
    odd = Event(seq=1, campaign="c", at=0.0, kind="log", ref="", payload=b"{not json")
    assert event_words.event(odd) == "log"


def test_verdicts_before_the_first_round_state_their_purpose() -> None:
    numbers = {"valid": True, "correct": True, "speedup": 1.01, "low": 0.94, "high": 1.07}
    assert event("verdict", purpose="baseline", **numbers) == \
        "verdict  baseline  noise [0.94, 1.07]  the unchanged code against itself"
    assert "uncertain [0.94, 1.07]" in event("verdict", purpose="verify", **numbers)
    assert event("verdict", purpose="canary", valid=True, correct=False) == \
        "verdict  canary  the broken copy failed, as it must: incorrect"
    empty = "emptied"
    assert event("verdict", empty, purpose="canary", valid=False, reason="row 1: err is '8'") == (
        "verdict  canary  the copy that computes nothing was found wrong, as it must: "
        "row 1: err is '8'")
    assert event("verdict", empty, purpose="canary", valid=False, reason=BLIND_CHECK) == \
        f"verdict  canary  ✗ {BLIND_CHECK}"
    assert event("baseline", "e3eaa5e64363", latency_us=99.21, noise=0.0910) == \
        "baseline  e3eaa5e6  99.2 us; a gain of less than 9.1% is hard to tell from noise"
    assert event("baseline", "e3eaa5e64363", latency_us=153e3, per="GB") == \
        "baseline  e3eaa5e6  153 ms/GB"


def test_what_a_worker_claims_is_quoted() -> None:
    forged = '✓ keep: 99.0x"; kept by kopt'
    line = event("candidate.captured", "c" * 40, slot="planned-1", hypothesis=forged)
    assert line.endswith("""planned-1  "✓ keep: 99.0x'; kept by kopt\"""")
    row = StreamPane().row(StreamLine(
        key="1", at=0.0, slot="planned-1", candidate="c" * 40, purpose="verify", outcome="keep",
        speedup="", reason="", hypothesis=forged), 160)
    assert row[-1][0] == """"✓ keep: 99.0x'; kept by kopt\""""
    assert phrases.quoted("\n") == phrases.quoted("") == ""


def test_end_of_a_round_says_its_outcome_once() -> None:
    ended = {"round": 1, "outcome": "baseline", "best_speedup": 1.0}
    assert event("round.end", "1", **ended, summary="baseline: small 26.4 us") == \
        "round end  1  1.00x  baseline: small 26.4 us"
    assert event("round.end", "1", **ended, summary="tied") == "round end  1  baseline  1.00x  tied"


def test_lines_of_events_omit_what_other_lines_or_files_say() -> None:
    assert event("artifacts", "baseline", path="rounds/round-1/a.tar.gz", sha256="7bc2" * 16) == \
        "artifacts  rounds/round-1/a.tar.gz"
    assert event("candidate.state", "95c00d61fe50", slot="planned-2", state="closed",
                 before="captured", reason="uncertain [0.91, 1.36]; tall uncertain") == \
        "candidate state  95c00d61  planned-2  closed"
    assert event("tips.learned", "e79aa8393aae", lesson="helped: SUMS=4", at=1796276393.0) == \
        "tips learned  e79aa8393aae  helped: SUMS=4"
    assert event("tips.learned", "e79aa8393aae", lesson="x" * 400).endswith("x…")


def test_speedup_in_a_reason_is_left_out_and_trends_need_two_values() -> None:
    assert phrases.unprefixed("1.05x [1.01, 1.09]; tall faster") == "tall faster"
    assert phrases.spark([1.0], 8) == "" and phrases.spark([1.0, 1.0], 8) == "▁▁"
    assert all(phrases.sign(word) for word in phrases.SIGNS)


def test_baseline_is_no_iteration_and_one_beyond_the_limit_has_no_limit() -> None:
    """A patch submitted after the end is judged in a further round."""
    assert [samples.campaign(round=n, rounds_max=4).iteration_place for n in range(6)] == \
        ["0", "baseline", "1 of 3", "2 of 3", "3 of 3", "4"]
    assert samples.campaign(round=3, rounds_max=None).iteration_place == "2"


def test_head_shows_the_waiting_gain_before_the_round_and_costs() -> None:
    row = CampaignRow(campaign=samples.campaign(CAMPAIGN), cost="$1.20", waiting=1, trend=(),
                      provisional="provisional 8.80x [6.23, 12.4], waiting for 5f3b74ec")
    _, (facts, _) = best_spans(row, "  ")
    assert facts.split()[:2] == ["provisional", "8.80x"] and facts.endswith("models $1.20")
