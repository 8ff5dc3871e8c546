"""A campaign's history: outcomes of rounds, the rolling list of regressions, fruitless rounds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history import history
from engine.history.history import RECENT
from engine.history.kept_commits import Rollback
from engine.journal.read import Reader
from engine.journal.write import Writer
from harness.verdict import Evidence, Finding, Row
from tests.support.dashboards import samples
from tests.support.engines.history_case import HistoryBuilder, mixed, verdict_of

PATCH = """\
--- a/scale.c
+++ b/scale.c
@@ -1 +1 @@
-slow
+slower
"""


@pytest.mark.parametrize(("decisions", "failed", "outcome"), [
    ([("keep", 1.2)], False, "keep"),
    ([("keep", 1.2), ("regression", 0.8)], False, "keep"),
    ([("regression", 0.8)], False, "regression"),
    ([("regression", 0.8), ("regression", 0.9)], True, "regression"),
    ([("regression", 0.8), ("tie", 1.0)], False, "tie"),
    ([("regression", 0.8), ("reject", None)], False, "regression"),
    ([("reject", None)], False, "failed"),
    ([("reject", None), ("reject", None)], True, "failed"),
    ([("tie", 1.0, {"timed": False})], False, "tie"),
    ([("tie", 1.0, {"timed": False}), ("regression", 0.8)], False, "regression"),
    ([("ask", 1.4, {"state": "waiting"}), ("regression", 0.8)], False, "tie"),
    ([("runner-up", 1.4)], False, "tie"),
    ([("reject", 40.0), ("regression", 0.8)], False, "regression"),  # a reject does not count
    ([], False, "tie"),
    ([], True, "failed"),
    ([("regression", 0.8, {"actor": "ann"})], False, "failed"),
    ([("keep", 1.2, {"actor": "ann"}), ("regression", 0.8)], False, "keep"),
    ([("keep", 1.2, {"state": "closed"}), ("regression", 0.8)], False, "tie"),
])
def test_round_is_a_regression_only_if_its_best_correct_candidate_is(
        decisions: list[Any], failed: bool, outcome: str) -> None:
    builder = HistoryBuilder().round(None, *decisions)
    assert builder.history.outcome(2, failed=failed) == outcome


CHEAT = Finding(rule="audit", severity="reject", detail="reads the clock")


@pytest.mark.parametrize(("decisions", "outcome"), [
    ([("reject", 0.77, mixed(0.77))], "regression"),
    ([("split", 0.77, mixed(0.77))], "regression"),
    ([("split", 0.77, mixed(0.77)), ("split", 0.77, mixed(0.77)), ("reject", None)], "regression"),
    ([("tie", 0.96, mixed(0.96, worst=0.96))], "regression"),
    ([("reject", 1.1, mixed(1.1))], "tie"),
    ([("reject", 0.995, mixed(0.995))], "tie"),
    ([("reject", 1.1, mixed(1.1)), ("regression", 0.8)], "tie"),
    ([("reject", 0.77, mixed(0.77)), ("tie", 1.0)], "tie"),
    ([("reject", 1.3, mixed(1.3, audit=(CHEAT,))), ("regression", 0.8)], "regression"),
    ([("reject", 0.77, mixed(0.77, audit=(CHEAT,)))], "failed"),
    ([("reject", 0.77)], "failed"),  # no class was slower: its patch was rejected
])
def test_candidate_that_is_slower_overall_is_a_regression_even_if_a_class_is_faster(
        decisions: list[Any], outcome: str) -> None:
    builder = HistoryBuilder().round(None, *decisions)
    assert builder.history.outcome(2) == outcome
    builder.rounds[-1] = HistoryBuilder._round(2, outcome)
    assert len(builder.history.recent()) == (outcome == "regression")


@pytest.mark.parametrize(("tied_slot", "outcome", "in_a_row"), [
    ("fixed", "regression", 2), ("planned-1", "tie", 0)])
def test_round_with_a_tie_is_no_regression_unless_the_tie_is_of_the_fixed_slot(
        tied_slot: str, outcome: str, in_a_row: int) -> None:
    builder = HistoryBuilder().round(None, ("regression", 0.8), ("regression", 0.7), ("tie", 1.0))
    builder.candidates["c3"] = msgspec.structs.replace(builder.candidates["c3"], slot=tied_slot)
    past = builder.history
    assert past.outcome(2) == outcome
    assert (len(past.slower), past.slower_in_a_row) == (2, in_a_row)


def test_regression_exceeds_the_margin_of_the_manifest() -> None:
    builder = HistoryBuilder().round(None, ("reject", 0.97, mixed(0.97)))
    assert builder.history.outcome(2) == "regression"
    assert msgspec.structs.replace(builder.history, margin=0.05).outcome(2) == "tie"


REGRESSION = ("regression", ("regression", 0.8))


def regressions(builder: HistoryBuilder, count: int) -> HistoryBuilder:
    for _ in range(count):
        builder.round(*REGRESSION)
    return builder


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 9])
def test_rolling_list_has_the_last_five_regressions(count: int) -> None:
    recent = regressions(HistoryBuilder(), count).history.recent()
    assert [entry.round for entry in recent] == list(range(2, count + 2))[-RECENT:]


@pytest.mark.parametrize(("outcome", "decision"), [
    ("keep", ("keep", 1.2)),
    ("tie", ("tie", 1.0)),
    ("failed", ("reject", None)),
])
def test_round_that_is_not_a_regression_clears_the_list(outcome: str,
                                                        decision: tuple[Any, ...]) -> None:
    builder = regressions(HistoryBuilder(), 3).round(outcome, decision)
    assert builder.history.recent() == ()
    assert [entry.round for entry in regressions(builder, 1).history.recent()] == [6]


def test_keep_by_a_person_after_the_round_clears_the_list() -> None:
    builder = regressions(HistoryBuilder(), 2)
    builder.decide(3, "keep", 1.3, actor="ann", at=45.0)
    assert builder.history.recent() == () and builder.history.best == "k3"
    assert [entry.round for entry in builder.history.until(44.0).recent()] == [2, 3]


def test_abandoned_keep_does_not_count() -> None:
    builder = regressions(HistoryBuilder(), 1)
    builder.decide(2, "keep", 1.3, state="closed")
    assert builder.history.best == "b0" and len(builder.history.recent()) == 1


def test_regression_has_every_field(tmp_path: Path) -> None:
    (tmp_path / "c1.patch").write_text(PATCH)
    rows = (Row(config_class="tall", correct=True, log_ratio=math.log(0.7), latency_us=20.0,
                pct_of_roofline=41.0),
            Row(config_class="odd", correct=True, log_ratio=math.log(0.9), latency_us=5.0,
                note="voided twice"),
            Row(config_class="wide", correct=True, log_ratio=0.01, latency_us=5.0))
    body = samples.verdict(latency_us=12.5, speedup=0.8, speedup_low=0.79, speedup_high=0.81,
                           rows=rows, evidence=(Evidence(kind="launch", detail="k: 3 waves"),
                                                Evidence(kind="cost", detail="2 s")))
    builder = HistoryBuilder(tmp_path).round("regression", ("regression", 0.8, {"body": body}))
    (entry,) = builder.history.recent()
    assert (entry.round, entry.at, entry.baseline, entry.candidate) == (2, 25.0, "b0", "c1")
    assert (entry.hypothesis, entry.bottleneck) == ("idea 1", "b1 memory")
    assert entry.files == ("scale.c",)
    assert entry.wall_us == (pytest.approx(10.0), 12.5) and entry.kernel_us is None
    assert entry.change == pytest.approx(0.25)
    assert entry.points == ("tall 42.9% slower (41% of roofline)", "odd 11.1% slower, voided twice",
                          "launch: k: 3 waves")


@pytest.mark.parametrize(("kind", "score", "kernel"), [
    ("measured-gpu", "kernel", True), ("measured-gpu", "wall", False),
    ("measured-cpu", "kernel", False)])
def test_only_the_measured_time_is_reported(kind: Any, score: Any, kernel: bool) -> None:
    body = samples.verdict(latency_kind=kind, speedup=0.8, speedup_low=0.7, speedup_high=0.9)
    builder = HistoryBuilder().round("regression", ("regression", 0.8, {"body": body}))
    (entry,) = msgspec.structs.replace(builder.history, score=score).recent()
    assert (entry.kernel_us is not None, entry.wall_us is not None) == (kernel, not kernel)


@pytest.mark.parametrize(("score", "wall", "kernel"), [
    ("kernel", (24.0, 30.0), (16.0, 20.0)), ("wall", (16.0, 20.0), (24.0, 30.0))])
def test_gpu_regression_has_both_times(score: Any, wall: Any, kernel: Any) -> None:
    """It has the times of whole calls and of GPU kernels, whichever of them is scored."""
    rows = tuple(Row(config_class=name, correct=True, latency_us=20.0, incumbent_us=16.0,
                     other_us=30.0 * share, incumbent_other_us=24.0 * share, weight=weight)
                 for name, share, weight in (("tall", 2.0, 1.0), ("odd", 0.5, 1.0)))
    body = samples.verdict(latency_kind="measured-gpu", latency_us=20.0, speedup=0.8,
                           speedup_low=0.7, speedup_high=0.9, rows=rows)
    builder = HistoryBuilder().round("regression", ("regression", 0.8, {"body": body}))
    (entry,) = msgspec.structs.replace(builder.history, score=score).recent()
    assert (entry.wall_us, entry.kernel_us) == (pytest.approx(wall), pytest.approx(kernel))


def test_regression_whose_patch_is_gone_lists_no_files() -> None:
    (entry,) = regressions(HistoryBuilder(), 1).history.recent()
    assert entry.files == ()


def test_round_is_listed_with_its_fastest_correct_candidate() -> None:
    builder = HistoryBuilder().round("regression", ("regression", 0.7), ("regression", 0.9),
                                     ("reject", None))
    assert [entry.candidate for entry in builder.history.recent()] == ["c2"]


@pytest.mark.parametrize(("rounds", "count"), [
    ([], 0),
    ([("tie", ())], 1),
    ([("tie", ()), ("tie", ())], 2),
    ([("tie", ()), ("tie", (("tie", 1.0),))], 0),
    ([("tie", (("tie", 1.0),)), ("failed", ())], 1),
    ([("failed", (("reject", None),)), ("tie", ()), ("failed", ())], 2),
    ([("tie", ()), (None, ())], 1),
])
def test_last_rounds_without_a_new_candidate_are_counted(rounds: list[Any], count: int) -> None:
    builder = HistoryBuilder()
    for outcome, decisions in rounds:
        builder.round(outcome, *decisions)
    assert builder.history.fruitless_rounds() == count


def test_best_after_a_round_is_the_latest_keep_so_far() -> None:
    builder = HistoryBuilder().round("keep", ("keep", 1.2)).round("tie", ("tie", 1.0)).round(
        "keep", ("keep", 1.5))
    past = builder.history
    assert [past.best_after(n) for n in (1, 2, 3, 4)] == ["b0", "k1", "k1", "k3"]


def test_rolled_back_commit_is_the_best_only_until_the_rollback() -> None:
    builder = HistoryBuilder().round("keep", ("keep", 1.2)).round("keep", ("keep", 1.5)).round(
        "keep", ("keep", 1.6)).round("keep", ("keep", 1.3))
    past = msgspec.structs.replace(builder.history, rollbacks=(Rollback(
        round=4, at=49.5, before="k3", commit="k1", reason="fails", destination="rolled back",
        undone=("k2", "k3")),))
    assert [past.best_after(n) for n in (2, 3, 4, 5)] == ["k1", "k2", "k3", "k4"]
    assert (past.until(49.0).best, past.until(49.5).best, past.best) == ("k3", "k1", "k4")
    assert [d.commit for d in past.standing] == ["k1", "k4"] and len(past.keeps) == 4
    assert past.was_in_place("k2", "k3") and past.was_in_place("k1", "k4")
    assert not past.was_in_place("k3", "k4")


kinds = st.sampled_from([("keep", 1.2), ("tie", 1.0), ("regression", 0.8), ("reject", None)])


@given(st.lists(st.lists(kinds, max_size=3), max_size=12))
def test_rolling_list_is_as_long_as_the_streak_up_to_five(rounds: list[list[Any]]) -> None:
    builder = HistoryBuilder()
    for decisions in rounds:
        builder.round(None, *decisions)
        n = len(builder.rounds)
        builder.rounds[-1] = HistoryBuilder._round(n, builder.history.outcome(n))
    past = builder.history
    recent = past.recent()
    assert len(recent) == min(RECENT, past.tally.consecutive_regressions)
    assert all(entry.change > 0 for entry in recent)
    assert list(recent) == sorted(recent, key=lambda entry: entry.round)
    assert past.until(math.inf).recent() == recent


def test_history_is_read_from_a_journal(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    writer.start_round(samples.round_(1))
    writer.end_round("rms", 1, outcome="baseline")
    writer.start_round(samples.round_(2))
    writer.add_candidate(samples.candidate(round=2))
    number = writer.add_verdict("rms", "c1", verdict_of(0.8), purpose="verify")
    writer.add_decision("rms", "c1", "regression", "slower", round=2, actor="engine",
                        verdict=number)
    writer.set_candidate_state("rms", "c1", "closed")
    past = history.read(Reader(tmp_path), "rms")
    assert past.outcome(2) == "regression" and past.tally.rounds == 0
    writer.end_round("rms", 2, outcome="regression")
    for _ in range(2):  # a second reader gets the same
        past = history.read(Reader(tmp_path), "rms")
        assert past.tally.consecutive_regressions == 1
        assert [entry.candidate for entry in past.recent()] == ["c1"]
    with pytest.raises(LookupError):
        history.read(Reader(tmp_path), "no_such_campaign")
