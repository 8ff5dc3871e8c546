"""Rounds continue from a gain that waits; a person's decision keeps or removes the waiting line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.campaign.setup import Setup
from engine.history import attempt_digest, history, waiting_line
from engine.journal.read import Reader
from kopt_tui.snapshot.campaign_rows import CampaignRows
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.engines.waiting_case import (
    LARGE,
    LARGER,
    RIVAL,
    SECOND,
    SMALL,
    costs_at,
    create,
    decide,
    hand_in,
    instant_verdicts,
    now,
    past,
    try_change,
)


@pytest.fixture(autouse=True)
def _instant(monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts(monkeypatch)


def test_round_continues_from_a_waiting_gain(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    assert (large.state, campaigns.campaign(setup).state) == ("waiting", "waiting")
    small = try_change(setup, SMALL, "small")
    assert (small.state, small.base_commit) == ("provisional", large.commit)
    assert costs_at(setup, setup.repo.tip) == LARGE | SMALL
    assert setup.repo.best == setup.repo.base == campaigns.campaign(setup).best_commit
    assert [round.incumbent for round in past(setup).rounds[1:]] == [
        setup.repo.base, large.commit]
    assert [round.outcome for round in past(setup).rounds[1:]] == ["waiting", "waiting"]
    assert campaigns.campaign(setup).speedup is None and campaigns.consistent(setup) == []

    answer = decide(setup, "approve", large)
    assert answer == "kept, with 1 gain that built on it"
    assert campaigns.consistent(setup) == [large.commit, small.commit]
    assert campaigns.campaign(setup).state == "finished"
    headline = campaigns.campaign(setup).speedup
    assert headline is not None and 3.5 < headline < 4.7  # costs of 290 and 75
    keeps = past(setup).keeps
    assert [(d.candidate, d.round, d.actor) for d in keeps] == [
        (large.id, 2, "ann@test"), (small.id, 3, "engine")]
    for n in (2, 3):
        assert campaigns.slots(setup, n)["inbox-1"][0] == "kept"
    assert not setup.repo.git.find(setup.repo.waiting_ref)


@pytest.mark.parametrize(("verb", "answer"), [
    ("approve", "kept already"),
    pytest.param("reject", "rejected already", marks=pytest.mark.slow)])
def test_decision_left_unanswered_by_a_killed_engine_is_answered_by_the_next(
        verb: str, answer: str, tmp_path: Path) -> None:
    """Such a request is still open, and its candidate is decided."""
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    decide(setup, verb, large)
    before = past(setup).decisions
    assert decide(setup, verb, large) == answer
    assert past(setup).decisions == before
    other = "reject" if verb == "approve" else "approve"
    assert decide(setup, other, large).startswith("refused: ")


def test_rejection_takes_away_the_gain_and_retries_what_rested_on_it(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    small = try_change(setup, SMALL, "small")
    assert decide(setup, "reject", large, reason="it changes\n the \x1b[31mrounding") == \
        "rejected; 1 gain that built on it will be tried without it"
    assert now(setup, large).state == "closed"
    rejected = "rejected by ann@test: it changes the rounding"
    reasons = [d.reason for d in past(setup).decisions if d.candidate == small.id]
    assert f"built on {large.id[:12]}, which was {rejected}" in reasons
    assert now(setup, large).reason == rejected
    phases = [event.payload.decode() for event in campaigns.events(setup)
              if event.kind == "campaign.state"]
    assert any("VALIDATE: retrying deferred gains on the best" in phase for phase in phases)
    with campaigns.reading(setup) as reader:
        assert rejected in attempt_digest.brief(history.read(reader, setup.id))
    for path in ("rounds/round-2/summary.md", "logs/optimize.md", "logs/performance_trend.md",
                 "report.md"):
        assert rejected in (setup.folder.path / path).read_text(), path
    [kept] = campaigns.candidates(setup, "kept")
    assert (kept.form_of, kept.round, kept.slot) == (small.id, small.round, small.slot)
    assert costs_at(setup, setup.repo.best) == SMALL and len(campaigns.consistent(setup)) == 1
    assert campaigns.slots(setup, 2)["inbox-1"][0] == "reject"
    assert campaigns.slots(setup, 3)["inbox-1"][0] == "kept"
    ended = {round.n: past(setup).outcome_now(round) for round in past(setup).rounds}
    assert ended == {1: "baseline", 2: "not kept", 3: "keep"}
    assert campaigns.campaign(setup).state == "finished"


def test_retried_gain_is_credited_to_the_slot_of_its_own_round(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    small = try_change(setup, SMALL, "small")
    try_change(setup, {"D": 50.0}, "slower")
    decide(setup, "reject", large)
    [kept] = campaigns.candidates(setup, "kept")
    assert (kept.form_of, kept.round) == (small.id, 3)
    assert campaigns.slots(setup, 3)["inbox-1"][0] == "kept"
    assert campaigns.slots(setup, 4)["inbox-1"][0] == "regression"
    assert "ACCEPTED" in (setup.folder.round(3) / "summary.md").read_text()


def test_gain_that_needs_a_rejected_one_states_that_as_its_reason(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    more = try_change(setup, {"A": 5.0}, "more", of=LARGE)
    assert more.base_commit == large.commit
    decide(setup, "reject", large)
    assert now(setup, more).reason == (
        "does not apply without the gain that it builds on, which is not kept")


def test_smaller_gain_that_conflicts_is_deferred_until_the_line_is_decided(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    rival = try_change(setup, RIVAL, "rival")
    assert (rival.state, rival.base_commit) == ("verified", setup.repo.base)
    assert rival.reason == f"deferred: conflicts with {large.id[:12]}, which waits for " \
                           "approval"
    assert decide(setup, "reject", large) == "rejected"
    assert now(setup, rival).state == "kept" and costs_at(setup, setup.repo.best) == RIVAL


def test_reason_of_a_conflict_with_a_waiting_gain_says_that_it_waits(
        tmp_path: Path) -> None:
    setup = create(tmp_path, pool={"slots": 2, "backends": ["inbox"]})
    try_change(setup, LARGE, "large")
    hand_in(setup, LARGE | {"B": 20.0}, "small", of=LARGE)
    try_change(setup, LARGE | SMALL, "smaller", of=LARGE)
    assert {"conflicts with a gain that waits for approval"} == {
        entry.reason for entry in campaigns.candidates(setup) if entry.state == "closed"}


def test_larger_gain_takes_the_place_of_a_line_that_it_conflicts_with(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    small = try_change(setup, SMALL, "small")
    larger = try_change(setup, LARGER, "larger")
    assert (larger.state, larger.base_commit) == ("waiting", setup.repo.base)
    assert costs_at(setup, setup.repo.tip) == LARGER
    assert now(setup, large).state == "verified" and "waits" in now(setup, large).reason
    assert now(setup, small).state == "closed"
    decide(setup, "reject", larger)
    assert now(setup, large).state == "waiting"  # asked again, on the best


@pytest.mark.slow
def test_line_that_is_made_again_takes_the_gains_that_rested_on_it(tmp_path: Path) -> None:
    """Its commits have other records then, but the same trees: no verdict is repeated."""
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    small = try_change(setup, {"B": 28.0}, "small")
    larger = try_change(setup, {"A": 1.0}, "larger")
    [moved] = campaigns.candidates(setup, "provisional")
    assert (moved.form_of, moved.base_commit) == (small.id, larger.commit)
    count = len(past(setup).verdicts)
    decide(setup, "reject", larger)
    lower, upper = now(setup, large), now(setup, small)
    assert (lower.state, upper.state) == ("waiting", "provisional")
    assert lower.commit != large.commit and upper.base_commit == lower.commit
    assert costs_at(setup, setup.repo.tip) == LARGE | {"B": 28.0}
    purposes = [row.purpose for row in list(past(setup).verdicts.values())[count:]]
    assert not {"verify", "format"} & set(purposes)


@pytest.mark.slow
def test_upper_of_two_waiting_gains_is_approved_after_the_lower(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    second = try_change(setup, SECOND, "second")
    assert (second.state, second.base_commit) == ("waiting", large.commit)
    assert decide(setup, "approve", second) == (
        f"refused: it builds on {large.id[:12]}, which waits as well: "
        f"approve {large.id[:12]} first")
    assert decide(setup, "approve", large) == "kept"
    assert campaigns.campaign(setup).state == "waiting"
    assert decide(setup, "approve", second) == "kept"
    assert campaigns.consistent(setup) == [large.commit, second.commit]


def test_decision_on_what_was_not_shown_is_refused(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    assert decide(setup, "approve", large, expected_base="0" * 40) == \
        "refused: the candidate's base is not the one that was shown"
    assert decide(setup, "approve", large, expected_verdict=987654) == \
        "refused: the candidate's verdict is not the one that was shown"
    assert decide(setup, "approve", large) == "kept"


def test_rounds_with_a_waiting_gain_count_toward_no_stop(tmp_path: Path) -> None:
    setup = create(tmp_path, stop={"no_gain_rounds": 1, "consecutive_regressions": 1})
    try_change(setup, LARGE, "large")
    for number in range(2):
        assert not try_change(setup, {"D": 50.0 + number}, f"slower-{number}").commit
        assert "inbox is empty" in campaigns.campaign(setup).reason
    small = try_change(setup, SMALL, "small")
    assert small.state == "provisional" and past(setup).tally.without_gain == 0


def output_of(setup: Setup, *words: str) -> str:
    code, out, err = campaigns.command(*words, workspace=setup.workspace)
    return out + err if code in (0, 1) else err


def test_people_see_what_waits_on_what(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    second = try_change(setup, SECOND, "second")
    lower, upper = large.id[:12], second.id[:12]
    wait = f"it builds on {lower}, which waits as well: approve {lower} first"
    provisional = f"waiting for approval of {lower}, {upper}"
    assert wait in output_of(setup, "approve", second.id)
    assert campaigns.candidates(setup, "kept") == []
    assert f"1 gain ({upper}, which waits)" in output_of(setup, "show", large.id)
    assert wait in output_of(setup, "show", second.id)
    assert "has kept nothing yet: provisional 18.1x" in output_of(setup, "merge")
    for words in (output_of(setup, "show"), output_of(setup, "status"),
                  setup.folder.performance.read_text(), setup.folder.report.read_text()):
        words = " ".join(words.split())  # `kopt status` wraps its lines
        assert "provisional 18.1x" in words and provisional in words  # costs: 290, 16
    reader = Reader(setup.workspace)
    rows = CampaignRows(reader)
    [row] = rows.at(1)
    reader.close()
    assert provisional in row.provisional and row.campaign.speedup is None
    by_id = {waiting.candidate.id: waiting for waiting in rows.waiting}
    assert by_id[second.id].obstacle == wait and not by_id[large.id].obstacle
    assert upper in by_id[large.id].resting
    summary = (setup.folder.round(3) / "summary.md").read_text()
    assert f"incumbent: {large.commit} (provisional: it waits" in summary


def test_moved_base_is_stated_as_the_obstacle_to_approval(tmp_path: Path) -> None:
    setup = create(tmp_path)
    large = try_change(setup, LARGE, "large")
    moved = msgspec.structs.replace(large, base_commit="0" * 40)
    assert waiting_line.obstacle(waiting_line.of([moved], setup.repo.best), moved).startswith(
        "base moved")


def test_published_branch_holds_approved_commits_only(tmp_path: Path) -> None:
    setup = create(tmp_path)
    try_change(setup, LARGE, "large")
    assert f"optimize/{setup.id}" not in repos.git(setup.repo.project, "branch", "--list", "*")
