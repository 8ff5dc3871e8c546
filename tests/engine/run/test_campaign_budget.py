"""Budgets count over all engines of a campaign and reserve time to judge candidates in flight."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.context import EngineContext
from engine.history import spending
from engine.history.history import CampaignHistory
from engine.history.spending import BEAT_S, ENDING_S, DurationEstimates, SpendingMeter
from engine.journal.judged_rows import DecisionKind, DecisionRow, VerdictRow
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.judge.stop_rules import BudgetUsed
from engine.manifest.schema import BudgetSpec
from engine.planning.planner import Planner
from tests.support.dashboards import samples
from tests.support.engines import campaigns


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Book:
    """A substitute for the part of a journal that a meter writes to."""

    def __init__(self) -> None:
        self.open = True
        self.seconds, self.trials, self.cost, self.writes = 0.0, 0, 0.0, 0

    def __call__(self, seconds: float, trials: int, cost: float) -> None:
        if not self.open:
            raise LookupError("no round")
        self.seconds += seconds
        self.trials += trials
        self.cost += cost
        self.writes += 1


def test_time_is_recorded_every_few_seconds() -> None:
    clock, book = Clock(), Book()
    meter = SpendingMeter(book, clock=clock)
    for _ in range(100):
        clock.now += BEAT_S / 10
        meter.beat()
    assert book.writes == pytest.approx(10, abs=1)
    assert meter.spent.wall_s == pytest.approx(10 * BEAT_S)
    assert meter.spent.wall_s - book.seconds < BEAT_S


def test_spending_before_first_round_counts_in_it() -> None:
    clock, book = Clock(), Book()
    book.open = False
    meter = SpendingMeter(book, clock=clock)
    clock.now += 20
    meter.beat()
    assert (book.seconds, meter.spent.wall_s) == (0.0, 20.0)
    book.open = True
    meter.beat()
    assert book.seconds == 20.0


def test_pause_costs_no_time() -> None:
    clock, book = Clock(), Book()
    meter = SpendingMeter(book, clock=clock)
    clock.now += 3
    meter.pause()
    clock.now += 5000
    meter.note(trials=1)
    meter.resume()
    clock.now += 4
    meter.note()
    assert (book.seconds, meter.spent) == (7.0, BudgetUsed(wall_s=7.0, trials=1))


def test_host_that_only_decides_requests_spends_no_time() -> None:
    clock, book = Clock(), Book()
    meter = SpendingMeter(book, BudgetUsed(wall_s=9.0), running=False, clock=clock)
    clock.now += 50
    meter.note()
    assert (book.seconds, meter.spent.wall_s) == (0.0, 9.0)


steps = st.lists(st.tuples(st.sampled_from(["work", "note", "beat", "pause", "resume", "killed"]),
                           st.floats(0, 30)), max_size=40)


@given(steps)
def test_each_killed_engine_loses_at_most_one_interval(steps: list[tuple[str, float]]) -> None:
    """The journal never holds more time than was worked, and a kill loses one interval at most."""
    clock, book = Clock(), Book()
    meter = SpendingMeter(book, clock=clock)
    worked, paused, kills = 0.0, False, 0
    for step, seconds in steps:
        if step == "work":
            clock.now += seconds
            worked += 0.0 if paused else seconds
            meter.beat()
        elif step == "killed":
            meter = SpendingMeter(book, BudgetUsed(wall_s=book.seconds), clock=clock)
            paused, kills = False, kills + 1
        elif step in ("pause", "resume") and paused != (step == "pause"):
            getattr(meter, step)()
            paused = step == "pause"
        elif step in ("note", "beat"):
            getattr(meter, step)()
    assert book.seconds <= worked + 1e-6
    assert meter.spent.wall_s >= worked - kills * BEAT_S - 1e-6


def test_restarted_round_keeps_its_spending(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.add_campaign(samples.campaign())
    with pytest.raises(LookupError):
        writer.spend("rms", 1, seconds=1.0)
    writer.start_round(samples.round_(1))
    writer.spend("rms", 1, seconds=2.5, trials=4, cost=0.5)
    writer.start_round(samples.round_(1))
    writer.spend("rms", 1, seconds=1.5, trials=1)
    writer.start_round(samples.round_(2))
    writer.spend("rms", 2, seconds=1.0)
    rounds = Reader(tmp_path).rounds("rms")
    assert spending.spent(rounds) == BudgetUsed(wall_s=5.0, trials=5, cost=0.5)


EACH = DurationEstimates(verdict=10.0, final=20.0, end_to_end=60.0)


@pytest.mark.parametrize(("wall_s", "each", "candidates", "more", "margin"), [
    (None, EACH, 4, {}, 0.0),
    (1000.0, DurationEstimates(verdict=10.0, final=10.0), 0, {}, ENDING_S + 10.0),
    (1000.0, DurationEstimates(verdict=10.0, final=10.0), 4, {}, ENDING_S + 50.0),
    (1000.0, DurationEstimates(), 4, {}, ENDING_S),
    (1000.0, EACH, 0, {}, ENDING_S + 80.0),
    (1000.0, EACH, 8, {"cards": 4}, ENDING_S + 20.0 + 80.0),
    (1000.0, EACH, 9, {"cards": 4}, ENDING_S + 30.0 + 80.0),
    (1000.0, EACH, 2, {"gains": 1}, ENDING_S + 20.0 + 80.0),
    (1000.0, EACH, 2, {"gains": 3}, ENDING_S + 20.0 + 20.0 + 80.0),
    (1000.0, EACH, 2, {"gains": 3, "formats": True}, ENDING_S + 20.0 + 50.0 + 80.0),
    (1000.0, EACH, 2, {"work": 2}, ENDING_S + 40.0 + 80.0),
    (100.0, EACH, 16, {}, 50.0),
    (2.0, EACH, 1, {}, 1.0),
])
def test_margin_covers_verdicts_in_flight_and_the_end(
        wall_s: float | None, each: DurationEstimates, candidates: int, more: dict[str, Any],
        margin: float) -> None:
    assert spending.margin_s(BudgetSpec(wall_s=wall_s), each, candidates, **more) == margin


@given(st.floats(1, 1e5), st.floats(0, 1e4), st.integers(0, 64), st.integers(1, 8),
       st.integers(0, 9))
def test_margin_grows_with_candidates_up_to_half_the_budget(
        wall_s: float, each_s: float, flying: int, cards: int, gains: int) -> None:
    budget = BudgetSpec(wall_s=wall_s)
    each = DurationEstimates(verdict=each_s, final=each_s, end_to_end=each_s)

    def margin(flying: int, cards: int, gains: int) -> float:
        return spending.margin_s(budget, each, flying, cards=cards, gains=gains)

    least = margin(flying, cards, gains)
    assert least <= margin(flying + 1, cards, gains) and least <= margin(flying, cards, gains + 1)
    assert margin(flying, cards + 1, gains) <= least <= wall_s / 2


def verdict_rows(folder: Path, *verdicts: tuple[str, float]) -> dict[int, VerdictRow]:
    writer = Writer(folder)
    writer.add_campaign(samples.campaign())
    for number, (purpose, wall_s) in enumerate(verdicts):
        writer.add_verdict("rms", f"c{number}", samples.verdict(wall_s=wall_s), purpose=purpose)
    return {row.id: row for row in Reader(folder).verdicts("rms")}


def test_estimate_is_the_longest_of_the_newest_verdicts(tmp_path: Path) -> None:
    assert spending.estimate_durations({}) == DurationEstimates()
    rows = verdict_rows(tmp_path, *(("verify", 99.0 if number == 0 else 3.0 if number == 9 else 2.0)
                                    for number in range(spending.LAST + 3)))
    assert spending.estimate_durations(rows) == DurationEstimates(verdict=3.0, final=3.0)


@pytest.mark.parametrize(("verdicts", "each"), [
    ([("baseline", 7.0)], DurationEstimates(verdict=7.0, final=7.0, end_to_end=7.0)),
    ([("baseline", 7.0), ("verify", 2.0)],
     DurationEstimates(verdict=2.0, final=7.0, end_to_end=7.0)),
    ([("baseline", 7.0), ("verify", 2.0), ("headline", 30.0)],
     DurationEstimates(verdict=2.0, final=30.0, end_to_end=30.0)),
    ([("baseline", 7.0), ("canary", 500.0), ("format", 3.0), ("headline", 9.0), ("e2e", 80.0)],
     DurationEstimates(verdict=3.0, final=9.0, end_to_end=80.0)),
])
def test_durations_are_estimated_per_kind_of_verdict(
        verdicts: list[tuple[str, float]], each: DurationEstimates, tmp_path: Path) -> None:
    rows = verdict_rows(tmp_path, *verdicts)
    assert spending.estimate_durations(rows, end_to_end=True) == each
    assert spending.estimate_durations(rows).end_to_end == 0.0


def decided(*kinds: DecisionKind) -> CampaignHistory:
    return CampaignHistory(folder=Path("/nowhere"), base="b", decisions=tuple(
        DecisionRow(id=n, campaign="c", candidate=f"c{n}", verdict=n, round=2, kind=kind,
                    reason="", actor="engine", commit="", at=0.0)
        for n, kind in enumerate(kinds)))


@pytest.mark.parametrize(("kinds", "candidates", "gains"), [
    ((), 8, 0), (("tie", "reject"), 8, 0), (("keep", "tie"), 3, 2), (("keep", "runner-up"), 3, 3),
    (("ask", "tie", "repair", "split"), 4, 1), (("keep",), 0, 0)])
def test_gains_in_flight_are_estimated_from_past_rate(
        kinds: tuple[DecisionKind, ...], candidates: int, gains: int) -> None:
    assert spending.gains_of(decided(*kinds), candidates) == gains


@pytest.mark.parametrize(("flying", "found", "cards"), [
    (0, 0, 1), (1, 0, 1), (4, 1, 1), (4, 3, 2), (9, 5, 4), (2, 8, 8)])
def test_end_of_campaign_fits_before_deadline(
        tmp_path: Path, flying: int, found: int, cards: int) -> None:
    """The clock advances until workers must end, then by the time that the remaining work takes."""
    setup = campaigns.create(tmp_path, budget={"wall_s": 2000}, e2e_command="true",
                             format_command="true")
    setup = dataclasses.replace(setup, devices=setup.devices * cards)
    writer, took = Writer(setup.workspace), {"baseline": 25.0, "verify": 8.0, "headline": 40.0,
                                             "e2e": 300.0}
    for purpose, wall_s in took.items():
        writer.add_verdict(setup.id, purpose, samples.verdict(wall_s=wall_s), purpose=purpose)
    writer.add_decision(setup.id, "c0", "keep", "", round=2, actor="engine")
    writer.add_decision(setup.id, "c1", "tie", "", round=2, actor="engine")
    writer.close()
    clock, book = Clock(), Book()
    meter = SpendingMeter(book, clock=clock)
    with campaigns.reading(setup) as reader:
        context = cast(EngineContext, SimpleNamespace(setup=setup, reader=reader))
        reason_to_end = Planner(context, meter).workers_deadline()
        while not reason_to_end(flying, found):
            clock.now += 0.5
    gains = found + -(-flying // 2)
    clock.now += ENDING_S + -(-flying // cards) * took["verify"]
    clock.now += max(0, gains - 1) * took["verify"]  # runners-up, on the new best
    clock.now += gains * took["verify"]  # verdicts on their formatted forms
    clock.now += took["headline"] + took["e2e"]
    assert 1990 < meter.spent.wall_s <= 2000.5
