"""The records of a campaign whose gains waited: one was approved late, one was rejected."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from engine.campaign.setup import Setup
from engine.history import campaign_view
from engine.journal.records import Candidate
from engine.records import present_limits
from engine.records.report import campaign_report
from tests.support.dashboards import samples
from tests.support.engines import campaigns
from tests.support.engines.waiting_case import (
    LARGE,
    LARGER,
    SECOND,
    create,
    decide,
    instant_verdicts,
    past,
    try_change,
)

REST = {"A": 5.0}
"""A change that is faster both with SECOND and without it."""
Decided = tuple[Setup, Candidate, Candidate, Candidate]


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Decided:
    """Return a campaign whose first gain is approved, second rejected, third retried without it."""
    with pytest.MonkeyPatch.context() as patch:
        instant_verdicts(patch)
        setup = create(tmp_path_factory.mktemp("waiting"))
        large = try_change(setup, LARGE, "a")
        second = try_change(setup, LARGE | SECOND, "b", of=LARGE)
        rest = try_change(setup, LARGE | SECOND | REST, "c", of=LARGE | SECOND)
        assert decide(setup, "approve", large) == "kept"
        assert decide(setup, "reject", second).startswith("rejected")
    return setup, large, second, rest


def test_report_names_what_waits_and_what_is_not_decided(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        instant_verdicts(patch)
        setup = create(tmp_path)
        large = try_change(setup, LARGE, "a")
    text = setup.folder.report.read_text()
    assert "No gain was kept: the kernel is unchanged. Not the result: provisional 2.90x" in text
    assert f"waiting for approval of {large.id[:12]}." in text
    assert "The provisional best against the baseline:\n\n| class | outcome | before " in text
    assert "All of them together against the baseline:\n\n| class | the baseline | provisional " \
        "best | gain |" in setup.folder.performance.read_text()
    assert "nothing was kept; 1 gain on the waiting line" in setup.folder.log.read_text()
    assert ", not kept yet: it is on the waiting line" in summary(setup, 2)
    undecided = samples.candidate(id="c0ffee", campaign=setup.id, hypothesis="unroll")
    with campaigns.reading(setup) as reader:
        view = campaign_view.read(reader, setup.id, setup.manifest)
    history = msgspec.structs.replace(
        view.history, candidates=view.history.candidates | {"c0ffee": undecided})
    text = campaign_report.markdown(msgspec.structs.replace(view, history=history))
    assert "| `c0ffee` | not decided |" in text and "| unroll |" in text


def summary(setup: Setup, n: int) -> str:
    return (setup.folder.round(n) / "summary.md").read_text()


def test_round_shows_its_own_candidates_and_their_last_decision(decided: Decided) -> None:
    setup, _, second, rest = decided
    assert "- outcome: keep" in summary(setup, 2) and rest.id[:12] not in summary(setup, 2)
    assert "- best so far: 1.00x; 2.90x with " in summary(setup, 2)
    text = summary(setup, 3)
    assert "- outcome: not kept" in text and "## Decision\n\nROLLED BACK" in text
    assert f"- {second.id[:12]}, after the round: reject: rejected by ann@test" in text
    text = summary(setup, 4)
    [again] = [entry for entry in campaigns.candidates(setup) if entry.form_of == rest.id]
    assert "## Decision\n\nACCEPTED" in text
    assert f"tried again on {again.base_commit[:12]} as {again.id}" in text
    assert f"- candidate: {again.id[:12]}" in text.split("transfer check")[1]
    assert f"- shown: candidate {again.id[:12]}" in text


def test_retry_without_a_rejected_gain_is_logged_once(decided: Decided) -> None:
    text = decided[0].folder.log.read_text()
    assert text.count("## runner-up, decided by engine") == 1
    assert re.search(rf"built on {decided[2].id[:12]}, which .*; tried again on ", text)


def test_a_round_shows_no_decision_on_a_candidate_of_another(decided: Decided) -> None:
    setup, *_ = decided
    for n in (2, 3, 4):
        decided_in = {decision.candidate for decision in past(setup).decisions_of(n)}
        others = {found.id for found in campaigns.candidates(setup) if found.round != n}
        assert decided_in and not decided_in & others


def test_report_has_a_line_for_each_candidate_with_all_its_decisions(decided: Decided) -> None:
    setup, *_ = decided
    text = setup.folder.report.read_text().split("## What was tried")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(campaigns.candidates(setup)) == 4
    assert [row.split(" | ")[3] for row in rows] == [
        "ask, then keep by ann@test", "ask, then reject by ann@test",
        "provisional, then runner-up", "keep"]
    assert "2 keep, 1 reject, 1 runner-up" in text


def test_trend_includes_decisions_made_after_a_round(decided: Decided) -> None:
    setup, *_ = decided
    lines = setup.folder.trend.read_text().splitlines()
    assert [line.split(" | ")[1] for line in lines if line[:4] in ("| 2 ", "| 3 ", "| 4 ")
            and " | class | " not in line] == [
        "WAITING", "WAITING", "WAITING", "ACCEPTED", "REJECTED", "ACCEPTED"]


@pytest.mark.slow
def test_limits_shown_are_those_of_the_newest_provisional_best(
        tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        instant_verdicts(patch)
        setup = create(tmp_path)
        try_change(setup, LARGE, "large")
        try_change(setup, LARGER, "larger")
    history = past(setup)
    for last in (2, 3):  # newest survey: of the baseline, then of the replaced line
        surveys = {n: found for n, found in history.surveys.items() if n <= last}
        [limit] = present_limits.of_best(msgspec.structs.replace(history, surveys=surveys))
        assert limit.detail.startswith("7.00 us as last measured")


@pytest.mark.slow
def test_limits_of_a_rejected_provisional_best_are_not_shown(
        tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        instant_verdicts(patch)
        setup = create(tmp_path)
        large = try_change(setup, LARGE, "a")
        try_change(setup, LARGE | REST, "b", of=LARGE)
        with campaigns.reading(setup) as reader:
            view = campaign_view.read(reader, setup.id, setup.manifest)
            assert present_limits.of_best(view.history) == view.history.surveys[4]
        decide(setup, "reject", large)
    with campaigns.reading(setup) as reader:
        past = campaign_view.read(reader, setup.id, setup.manifest).history
    [limit] = present_limits.of_best(past)
    assert limit.detail.startswith("290 us as last measured")
    assert " regressions (rounds beside a waiting gain do not count)" in \
        setup.folder.performance.read_text()
