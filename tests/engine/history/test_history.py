"""What a campaign has been through, by its journal: outcomes, the rolling list, vain rounds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history import history
from engine.history.history import RECENT, CampaignHistory, Rollback
from engine.journal.read import Reader
from engine.journal.records import Candidate, DecisionRow, Round, VerdictRow
from engine.journal.write import Writer
from harness.verdict import Evidence, Finding, Row, Verdict
from tests.support import samples

PATCH = """\
--- a/scale.c
+++ b/scale.c
@@ -1 +1 @@
-slow
+slower
"""


class Told:
    """Builds a past, decision by decision."""

    def __init__(self, folder: Path = Path("/nowhere")) -> None:
        self.folder = folder
        self.rounds = [self._round(1, "baseline")]
        self.decisions: list[DecisionRow] = []
        self.verdicts: dict[int, VerdictRow] = {}
        self.candidates: dict[str, Candidate] = {}

    def round(self, outcome: Any, *decisions: tuple[Any, ...]) -> Told:
        """Add a round with (kind, speedup or None when wrong, extra fields of the decision)."""
        n = len(self.rounds) + 1
        self.rounds.append(self._round(n, outcome))
        for kind, speedup, *more in decisions:
            self.decide(n, kind, speedup, **(more[0] if more else {}))
        return self

    def decide(self, n: int, kind: Any, speedup: float | None, *, actor: str = "engine",
               at: float | None = None, timed: bool = True, state: Any = None,
               body: Verdict | None = None) -> None:
        number = len(self.decisions) + 1
        name = f"c{number}"
        verdict = body or made(speedup, timed)
        self.verdicts[number] = VerdictRow(
            id=number, campaign="c", candidate=name, purpose="verify", incumbent_tree="t",
            harness_version="1", valid=verdict.valid, correct=verdict.correct,
            latency_us=verdict.latency_us, speedup=verdict.speedup, low=None, high=None,
            body=encoded(verdict), at=at or n * 10.0 + 4)
        self.decisions.append(DecisionRow(
            id=number, campaign="c", candidate=name, verdict=number, round=n, kind=kind,
            reason="r", actor=actor, commit=f"k{number}" if kind == "keep" else "",
            at=at or n * 10.0 + 5))
        self.candidates[name] = samples.candidate(
            name, "c", round=n, state=state or ("kept" if kind == "keep" else "closed"),
            hypothesis=f"idea {number}", bottleneck="b1 memory", patch_path=f"{name}.patch")

    @property
    def history(self) -> CampaignHistory:
        return CampaignHistory(folder=self.folder, base="b0", rounds=tuple(self.rounds),
                    decisions=tuple(self.decisions), verdicts=self.verdicts,
                    candidates=self.candidates)

    @staticmethod
    def _round(n: int, outcome: Any) -> Round:
        return Round(campaign="c", n=n, scope="global", incumbent=f"best{n}", started_at=n * 10.0,
                     ended_at=None if outcome is None else n * 10.0 + 9, outcome=outcome)


def made(speedup: float | None, timed: bool = True) -> Verdict:
    if speedup is None:
        return samples.verdict(correct=False, latency_us=None, latency_kind=None, speedup=None,
                               speedup_low=None, speedup_high=None)
    if not timed:
        return samples.verdict(latency_us=None, latency_kind=None, speedup=None, speedup_low=None,
                               speedup_high=None)
    return samples.verdict(latency_us=10.0 / speedup, speedup=speedup, speedup_low=speedup * 0.99,
                           speedup_high=speedup * 1.01)


def encoded(verdict: Verdict) -> bytes:
    return msgspec.json.encode(verdict)


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
    ([("reject", 40.0), ("regression", 0.8)], False, "regression"),  # a cheat hides none
    ([], False, "tie"),
    ([], True, "failed"),
    ([("regression", 0.8, {"actor": "ann"})], False, "failed"),
    ([("keep", 1.2, {"actor": "ann"}), ("regression", 0.8)], False, "keep"),
    ([("keep", 1.2, {"state": "closed"}), ("regression", 0.8)], False, "tie"),
])
def test_a_round_is_a_regression_only_if_its_best_correct_candidate_is(
        decisions: list[Any], failed: bool, outcome: str) -> None:
    told = Told().round(None, *decisions)
    assert told.history.outcome(2, failed=failed) == outcome


def mixed(speedup: float, *, worst: float = 0.6, **fields: Any) -> dict[str, Any]:
    """Return the verdict of what is faster in one class and slower in another, for sure."""
    rows = tuple(Row(config_class=name, correct=True, outcome=outcome, latency_us=10.0,
                     log_ratio=math.log(ratio), stderr=0.001, pairs=6)
                 for name, outcome, ratio in (("tall", "faster", 1.2), ("odd", "slower", worst)))
    return {"body": samples.verdict(
        latency_us=10.0 / speedup, speedup=speedup, speedup_low=speedup * 0.99,
        speedup_high=speedup * 1.01, rows=rows, **fields)}


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
    ([("reject", 0.77)], "failed"),  # its patch goes too far: no class was what was wrong
])
def test_one_faster_class_hides_no_regression(decisions: list[Any], outcome: str) -> None:
    told = Told().round(None, *decisions)
    assert told.history.outcome(2) == outcome
    told.rounds[-1] = Told._round(2, outcome)
    assert len(told.history.recent()) == (outcome == "regression")


def test_a_regression_is_one_beyond_the_manifests_margin() -> None:
    told = Told().round(None, ("reject", 0.97, mixed(0.97)))
    assert told.history.outcome(2) == "regression"
    assert msgspec.structs.replace(told.history, margin=0.05).outcome(2) == "tie"


REGRESSION = ("regression", ("regression", 0.8))


def regressions(told: Told, count: int) -> Told:
    for _ in range(count):
        told.round(*REGRESSION)
    return told


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 9])
def test_the_list_rolls_over_the_last_five(count: int) -> None:
    recent = regressions(Told(), count).history.recent()
    assert [one.round for one in recent] == list(range(2, count + 2))[-RECENT:]


@pytest.mark.parametrize(("outcome", "decision"), [
    ("keep", ("keep", 1.2)),
    ("tie", ("tie", 1.0)),
    ("failed", ("reject", None)),
])
def test_what_is_no_regression_clears_the_list(outcome: str, decision: tuple[Any, ...]) -> None:
    told = regressions(Told(), 3).round(outcome, decision)
    assert told.history.recent() == ()
    assert [one.round for one in regressions(told, 1).history.recent()] == [6]


def test_a_keep_by_a_person_after_the_round_clears_the_list() -> None:
    told = regressions(Told(), 2)
    told.decide(3, "keep", 1.3, actor="ann", at=45.0)
    assert told.history.recent() == () and told.history.best == "k3"
    assert [one.round for one in told.history.until(44.0).recent()] == [2, 3]


def test_a_keep_that_was_given_up_is_none() -> None:
    told = regressions(Told(), 1)
    told.decide(2, "keep", 1.3, state="closed")
    assert told.history.best == "b0" and len(told.history.recent()) == 1


def test_a_summary_has_every_field(tmp_path: Path) -> None:
    """Time, BEST_COMMIT, candidate, hypothesis, files, both times, change, what regressed."""
    (tmp_path / "c1.patch").write_text(PATCH)
    rows = (Row(config_class="tall", correct=True, log_ratio=math.log(0.7), latency_us=20.0,
                pct_of_roofline=41.0),
            Row(config_class="odd", correct=True, log_ratio=math.log(0.9), latency_us=5.0,
                note="voided twice"),
            Row(config_class="wide", correct=True, log_ratio=0.01, latency_us=5.0))
    body = samples.verdict(latency_us=12.5, speedup=0.8, speedup_low=0.79, speedup_high=0.81,
                           rows=rows, evidence=(Evidence(kind="launch", detail="k: 3 waves"),
                                                Evidence(kind="cost", detail="2 s")))
    told = Told(tmp_path).round("regression", ("regression", 0.8, {"body": body}))
    (one,) = told.history.recent()
    assert (one.round, one.at, one.baseline, one.candidate) == (2, 25.0, "b0", "c1")
    assert (one.hypothesis, one.bottleneck, one.files) == ("idea 1", "b1 memory", ("scale.c",))
    assert one.wall_us == (pytest.approx(10.0), 12.5) and one.kernel_us is None
    assert one.change == pytest.approx(0.25)
    assert one.points == ("tall 42.9% slower (41% of roofline)", "odd 11.1% slower, voided twice",
                          "launch: k: 3 waves")


@pytest.mark.parametrize(("kind", "score", "kernel"), [
    ("measured-gpu", "kernel", True), ("measured-gpu", "wall", False),
    ("measured-cpu", "kernel", False)])
def test_only_the_scored_time_is_claimed(kind: Any, score: Any, kernel: bool) -> None:
    body = samples.verdict(latency_kind=kind, speedup=0.8, speedup_low=0.7, speedup_high=0.9)
    told = Told().round("regression", ("regression", 0.8, {"body": body}))
    (one,) = msgspec.structs.replace(told.history, score=score).recent()
    assert (one.kernel_us is not None, one.wall_us is not None) == (kernel, not kernel)


@pytest.mark.parametrize(("score", "wall", "kernel"), [
    ("kernel", (24.0, 30.0), (16.0, 20.0)), ("wall", (16.0, 20.0), (24.0, 30.0))])
def test_a_card_has_both_times_in_the_summary(score: Any, wall: Any, kernel: Any) -> None:
    """The benchmark's and the GPU kernel's, best to candidate, whichever is scored."""
    rows = tuple(Row(config_class=name, correct=True, latency_us=20.0, incumbent_us=16.0,
                     other_us=30.0 * share, incumbent_other_us=24.0 * share, weight=weight)
                 for name, share, weight in (("tall", 2.0, 1.0), ("odd", 0.5, 1.0)))
    body = samples.verdict(latency_kind="measured-gpu", latency_us=20.0, speedup=0.8,
                           speedup_low=0.7, speedup_high=0.9, rows=rows)
    told = Told().round("regression", ("regression", 0.8, {"body": body}))
    (one,) = msgspec.structs.replace(told.history, score=score).recent()
    assert (one.wall_us, one.kernel_us) == (pytest.approx(wall), pytest.approx(kernel))


def test_a_patch_that_was_pruned_costs_only_its_file_names() -> None:
    (one,) = regressions(Told(), 1).history.recent()
    assert one.files == ()


def test_the_fastest_of_a_round_is_its_summary() -> None:
    told = Told().round("regression", ("regression", 0.7), ("regression", 0.9), ("reject", None))
    assert [one.candidate for one in told.history.recent()] == ["c2"]


@pytest.mark.parametrize(("rounds", "count"), [
    ([], 0),
    ([("tie", ())], 1),
    ([("tie", ()), ("tie", ())], 2),
    ([("tie", ()), ("tie", (("tie", 1.0),))], 0),
    ([("tie", (("tie", 1.0),)), ("failed", ())], 1),
    ([("failed", (("reject", None),)), ("tie", ()), ("failed", ())], 2),
    ([("tie", ()), (None, ())], 1),
])
def test_a_round_without_a_new_candidate_is_in_vain(rounds: list[Any], count: int) -> None:
    told = Told()
    for outcome, decisions in rounds:
        told.round(outcome, *decisions)
    assert told.history.fruitless() == count


def test_the_best_after_a_round_is_what_was_kept_until_the_next() -> None:
    told = Told().round("keep", ("keep", 1.2)).round("tie", ("tie", 1.0)).round(
        "keep", ("keep", 1.5))
    past = told.history
    assert [past.best_after(n) for n in (1, 2, 3, 4)] == ["b0", "k1", "k1", "k3"]


def test_what_was_rolled_back_is_best_no_more_and_was_until_then() -> None:
    told = Told().round("keep", ("keep", 1.2)).round("keep", ("keep", 1.5)).round(
        "keep", ("keep", 1.6)).round("keep", ("keep", 1.3))
    past = msgspec.structs.replace(told.history, rollbacks=(Rollback(
        round=4, at=49.5, before="k3", commit="k1", reason="fails", told="rolled back",
        undone=("k2", "k3")),))
    assert [past.best_after(n) for n in (2, 3, 4, 5)] == ["k1", "k2", "k3", "k4"]
    assert (past.until(49.0).best, past.until(49.5).best, past.best) == ("k3", "k1", "k4")
    assert [d.commit for d in past.standing] == ["k1", "k4"] and len(past.keeps) == 4
    assert past.stood("k2", "k3") and past.stood("k1", "k4") and not past.stood("k3", "k4")


kinds = st.sampled_from([("keep", 1.2), ("tie", 1.0), ("regression", 0.8), ("reject", None)])


@given(st.lists(st.lists(kinds, max_size=3), max_size=12))
def test_the_list_is_as_long_as_the_streak_up_to_five(rounds: list[list[Any]]) -> None:
    told = Told()
    for decisions in rounds:
        told.round(None, *decisions)
        n = len(told.rounds)
        told.rounds[-1] = Told._round(n, told.history.outcome(n))
    past = told.history
    recent = past.recent()
    assert len(recent) == min(RECENT, past.tally.consecutive_regressions)
    assert all(one.change > 0 for one in recent)
    assert list(recent) == sorted(recent, key=lambda one: one.round)
    assert past.until(math.inf).recent() == recent


def test_it_is_read_from_a_journal(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    writer.start_round(samples.round_(1))
    writer.end_round("rms", 1, outcome="baseline")
    writer.start_round(samples.round_(2))
    writer.add_candidate(samples.candidate(round=2))
    number = writer.add_verdict("rms", "c1", made(0.8), purpose="verify")
    writer.add_decision("rms", "c1", "regression", "slower", round=2, actor="engine",
                        verdict=number)
    writer.set_candidate_state("rms", "c1", "closed")
    past = history.read(Reader(tmp_path), "rms")
    assert past.outcome(2) == "regression" and past.tally.rounds == 0
    writer.end_round("rms", 2, outcome="regression")
    for _ in range(2):  # whoever reads it, whenever
        past = history.read(Reader(tmp_path), "rms")
        assert past.tally.consecutive_regressions == 1
        assert [one.candidate for one in past.recent()] == ["c1"]
    with pytest.raises(LookupError):
        history.read(Reader(tmp_path), "nobody")
