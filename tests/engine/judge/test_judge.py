"""The judge's rulings and their reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.judge.judge import Policy, needs_split, rule
from engine.repository.patches.hygiene import Violation, ViolationKind
from harness.verdict import (
    BUSY,
    HELD_OUT,
    KERNEL_TIME,
    ClassOutcome,
    Finding,
    Row,
    Severity,
    Verdict,
    rejected,
)

AUTO, REVIEW, FLAGGED = Policy(approval="auto"), Policy(approval="review"), Policy()
BLIND = Policy(approval="auto", is_check_blind=True)


def row(gain: float, outcome: ClassOutcome = "faster", *, name: str = "tall", core: bool = False,
        stderr: float = 0.001) -> Row:
    """Return a class that is faster by `gain`, a share; `stderr` is small by default."""
    ratio = math.log1p(gain)
    return Row(config_class=name, correct=True, outcome=outcome, latency_us=10.0, core=core,
               incumbent_us=10.0 * (1 + gain), log_ratio=ratio, low=ratio - 5 * stderr,
               high=ratio + 5 * stderr, stderr=stderr, pairs=6)


def verdict(*rows: Row, speedup: float = 1.5, low: float | None = None,
            audit: tuple[Finding, ...] = ()) -> Verdict:
    return Verdict(valid=True, correct=all(r.correct for r in rows), latency_us=10.0,
                   latency_kind="measured-cpu", speedup=speedup, rows=rows, audit=audit,
                   speedup_low=speedup - 0.05 if low is None else low, speedup_high=speedup + 0.05)


def test_verdict_that_says_nothing_since_the_machine_was_busy_says_so() -> None:
    """A kernel with threads that was 4x faster was a tie, uncertain, and nothing told why."""
    busy = "the machine was busy: 3.7 programs ran on 2 cores in the last minute, so times scatter"
    given = replace(verdict(row(1.2, "tie", stderr=0.5), speedup=2.5, low=0.3),
                    notes=("class tall: another note", busy))
    wide = replace(given, speedup_high=21.6)
    ruling, quiet = rule(wide, AUTO), rule(replace(wide, notes=()), AUTO)
    assert ruling.reason == f"uncertain; near gain of 150.0%, not sure; tall uncertain; {busy}"
    assert ruling.near_gain == pytest.approx(1.5), "it is worth another measurement"
    assert quiet.reason == "uncertain; tall uncertain" and quiet.near_gain is None
    assert busy not in rule(replace(given, speedup_low=0.9), AUTO).reason, "its interval says more"


def test_verdict_without_a_time_names_its_cause_and_not_the_load_of_the_machine() -> None:
    interpreted = "interpreted: not timed"
    untimed = verdict(replace(row(0.0, "tie"), latency_us=None))
    for notes, reason in (((interpreted, BUSY), interpreted), ((BUSY,), "not timed")):
        assert rule(replace(untimed, notes=notes), AUTO).reason == reason


@pytest.mark.parametrize(("given", "policy", "kind", "words"), [
    (verdict(row(0.5)), AUTO, "keep", "1.50x [1.45, 1.55]; tall 50.0% faster"),
    (verdict(row(0.5)), FLAGGED, "keep", "1.50x"),
    (verdict(row(0.5)), REVIEW, "ask", "1.50x"),
    (verdict(row(0.5)), BLIND, "ask", "1.50x"),
    (verdict(row(0.02), speedup=1.0, low=0.97), BLIND, "tie", "no significant gain"),
    (verdict(row(1.2), speedup=2.2), FLAGGED, "ask", "2.20x"),
    (verdict(row(1.2), speedup=2.2), AUTO, "keep", "2.20x"),
    (verdict(row(0.5), row(-0.004, "tie", name="odd")), AUTO, "keep", "odd tie"),
    (verdict(row(0.5), row(-0.03, "slower", name="odd")), AUTO, "ask", "odd 3.1% slower"),
    (verdict(row(0.5), row(-0.03, "slower", name="odd", core=True)), AUTO, "ask",
     "odd 3.1% slower"),
    (verdict(row(0.5), row(-0.06, "slower", name="odd", core=True)), AUTO, "reject",
     "core class odd loses 6.4%; needs a split"),
    (verdict(row(0.5), row(-0.06, "slower", name="odd")), AUTO, "reject", "needs a split"),
    (verdict(row(0.5), row(-0.06, "tie", name="odd", stderr=0.2)), AUTO, "keep", "odd uncertain"),
    (verdict(row(0.02), speedup=1.0, low=0.97), AUTO, "tie",
     "no significant gain over all classes"),
    (verdict(row(0.02), row(-0.04, "slower", name="odd"), speedup=0.97), AUTO, "regression",
     "no significant gain over all classes: uncertain [0.92, 1.02]; a class is slower at an error "
     "rate of 5 %: odd 4.2% slower, tall 2.0% faster"),
    (verdict(row(0.0, "tie"), speedup=1.0), AUTO, "tie", "tall tie"),
    (verdict(row(-0.2, "slower"), speedup=0.8), AUTO, "regression", "tall 25.0% slower"),
    (verdict(row(-0.2, "slower", stderr=1.0), speedup=0.8), AUTO, "tie", ""),
    (rejected("does not compile: expected ';'"), AUTO, "reject", "does not compile"),
    (Verdict(valid=True, rows=(Row(config_class="odd", correct=False, note="error 0.1"),)), AUTO,
     "reject", "wrong result: class odd: error 0.1"),
    (Verdict(valid=True, correct=True, rows=(Row(config_class="tall", correct=True),),
             notes=("no GPU here",)), AUTO, "tie", "no GPU here"),
])
def test_ruling_follows_from_verdict_and_policy(given: Verdict, policy: Policy, kind: str,
                                                words: str) -> None:
    ruling = rule(given, policy)
    assert (ruling.kind, words in ruling.reason) == (kind, True), ruling


@pytest.mark.parametrize("policy", [AUTO, REVIEW, FLAGGED])
def test_nothing_is_kept_on_a_quick_verdict(policy: Policy) -> None:
    quick = replace(verdict(row(0.5)), effort="quick")
    ruling = rule(quick, policy)
    assert (ruling.kind, ruling.reason) == ("tie", "a quick verdict cannot lead to a keep")
    assert rule(replace(quick, effort="thorough"), AUTO).kind == "keep"


def test_a_quick_verdict_asks_for_no_split() -> None:
    divergent = verdict(row(0.5), row(-0.06, "slower", name="odd"))
    assert needs_split(divergent) and not needs_split(replace(divergent, effort="quick"))


@pytest.mark.parametrize(("policy", "given", "doubt"), [
    (REVIEW, verdict(row(0.5)), "every keep is reviewed"),
    (FLAGGED, verdict(row(2.0), speedup=3.0), "3.00x is more than 2x"),
    (AUTO, verdict(row(0.5), row(-0.03, "slower", name="odd")), "a class loses 3.1%"),
    (AUTO, verdict(row(0.5), audit=(Finding(rule=KERNEL_TIME, severity="flag",
                                            detail="kernels take longer"),)),
     "audit: kernels take longer"),
    (AUTO, verdict(row(0.5), audit=(Finding(rule=HELD_OUT, severity="flag",
                                            detail="is wrong on n=1025"),)),
     "audit: is wrong on n=1025"),
])
def test_approval_request_states_reason(policy: Policy, given: Verdict, doubt: str) -> None:
    assert rule(given, policy).doubts == (doubt,)


@pytest.mark.parametrize(("severity", "policy", "kind"), [
    ("reject", AUTO, "reject"), ("flag", FLAGGED, "ask"), ("flag", AUTO, "keep"),
    ("note", FLAGGED, "keep"),
])
def test_audit_findings_reject_or_ask(severity: Severity, policy: Policy, kind: str) -> None:
    finding = Finding(rule="clock", severity=severity, detail="odd clocks")
    ruling = rule(verdict(row(0.5), audit=(finding,)), policy)
    assert ruling.kind == kind
    assert kind == "keep" or "odd clocks" in f"{ruling.reason} {ruling.doubts}"


@pytest.mark.parametrize(("kind", "policy", "expected"), [
    ("frozen", AUTO, "reject"), ("dependency", AUTO, "reject"), ("symlink", AUTO, "reject"),
    ("start-up", FLAGGED, "reject"), ("outside", FLAGGED, "ask"), ("outside", AUTO, "keep"),
])
def test_patch_violations_reject_or_ask(kind: ViolationKind, policy: Policy,
                                        expected: str) -> None:
    finding = Violation(kind, "setup.py", "is not for you")
    ruling = rule(verdict(row(0.5)), policy, violations=(finding,))
    assert ruling.kind == expected
    assert expected == "keep" or "setup.py" in f"{ruling.reason} {ruling.doubts}"


@pytest.mark.parametrize(("given", "expected"), [
    (verdict(row(0.5), row(-0.03, "slower", name="odd")), True),
    (verdict(row(0.5), row(-0.5, "slower", name="odd")), True),
    (verdict(row(0.5), row(-0.03, "tie", name="odd")), False),
    (verdict(row(0.5)), False),
    (verdict(row(-0.5, "slower")), False),
    (Verdict(valid=True, rows=(row(0.5), row(-0.5, "slower", name="odd"))), False),
    (verdict(row(0.5), row(-0.5, "slower", name="odd"),
             audit=(Finding(rule="clock", severity="reject", detail="sleeps"),)), False),
])
def test_split_is_needed_where_one_class_is_faster_and_another_slower(
        given: Verdict, expected: bool) -> None:
    assert needs_split(given) is expected


def test_gain_in_one_of_many_classes_is_kept_if_significant_over_all() -> None:
    rows = (row(0.5), row(0.0, "tie", name="odd"), row(0.0, "tie", name="square"))
    assert rule(verdict(*rows, speedup=1.1), AUTO).kind == "keep"


def test_manifest_tolerance_decides_about_small_losses() -> None:
    given = verdict(row(0.5), row(-0.02, "slower", name="odd"))
    assert rule(given, Policy(approval="auto", tolerance=0.03)).kind == "keep"
    assert rule(given, Policy(approval="auto", tolerance=0.01)).kind == "ask"
