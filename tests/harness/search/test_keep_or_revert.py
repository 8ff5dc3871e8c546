"""Which trial is kept, the order of configurations, and resuming both from a record."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.search.bayesian.bayesian_search import BayesianSearch
from harness.search.space.tunable_source import complexity
from harness.search.strategy import AskTell, Incumbent
from harness.search.trials.trials import Trial
from harness.verdict import Config
from tests.support.searches.search_case import config_key
from tests.support.searches.trial_case import SPACE, trial, tried


def predicted(us: float, config: Config | None = None) -> Trial:
    return trial(1.0, config, log_ratio=None, latency_us=us, latency_kind="predicted")


def ruled(*trials: Trial) -> int | None:
    """Return the index of the trial that is kept last, None if none is kept."""
    ruling = Incumbent(SPACE, 0.01)
    taken = [index for index, one in enumerate(trials) if ruling.take(one)]
    assert ruling.best is (trials[taken[-1]] if taken else None)
    return taken[-1] if taken else None


UNTIMED = trial(1.0, log_ratio=None, latency_us=None, latency_kind=None)
WITHHELD = trial(1.0, {"A": 8}, log_ratio=None, latency_us=None, latency_kind=None,
                 reason="latency withheld")


@pytest.mark.parametrize(("trials", "best"), [
    ((trial(None), trial(0.5), trial(None)), 1),  # the correct one of three
    ((trial(None), trial(None)), None),
    ((trial(1), trial(1.0101, {"A": 4})), 1),  # faster by more than the margin
    ((trial(1), trial(1.009, {"A": 4})), 0),
    # within the margin, and fewer knobs changed
    ((trial(1.2, {"A": 4, "C": "on"}), trial(1.195, {"A": 4})), 1),
    ((trial(1.2, {"A": 4}), trial(1.195, {"A": 1})), 1),  # within the margin and smaller values
    ((trial(1.2, {"A": 4}), trial(1.195, {"A": 8})), 0),
    ((trial(1.2, {"A": 4}), trial(1.195, {"A": 4})), 0),
    ((trial(1.2, {"A": 4}), trial(1.18)), 0),  # simpler, but slower by more than the margin
    ((trial(1.2, {"A": 8, "B": 0.25, "C": "on"}), trial(1.192, {"A": 8, "C": "on"}),
      trial(1.184, {"A": 8})), 1),  # small losses do not add up
    ((trial(1.0), predicted(0.1, {"A": 4})), 0),  # a prediction never beats a measurement
    ((predicted(0.1, {"A": 4}), trial(1.0)), 1),
    ((predicted(2.0), predicted(1.0, {"A": 4}), predicted(1.5, {"A": 8})), 1),
    ((UNTIMED, UNTIMED, predicted(5.0, {"A": 4})), 2),
    ((trial(1.0), UNTIMED), 0),
    ((WITHHELD, trial(0.3)), 1),  # a latency withheld as impossibly low never counts
    ((WITHHELD,), None),
])
def test_best_trial_is_the_fastest_correct_one_or_a_simpler_one_within_the_margin(
        trials: tuple[Trial, ...], best: int | None) -> None:
    assert ruled(*trials) == best


def test_configuration_is_simpler_with_fewer_changed_knobs_then_with_smaller_values() -> None:
    order = [{}, {"A": 1}, {"C": "on"}, {"A": 4}, {"A": 8}, {"A": 1, "B": 0.25},
             {"A": 8, "B": 0.25, "C": "on"}]
    ranks = [complexity(SPACE, {**SPACE.default, **trial}) for trial in order]
    assert [away for away, _ in ranks] == [0, 1, 1, 1, 1, 2, 3]
    assert ranks[1] < ranks[3] < ranks[4] and ranks[0] == min(ranks)


@pytest.mark.parametrize("fields", [
    {"correctness": "FAIL", "tag": "revert", "log_ratio": None},
    {"latency_kind": None}, {"latency_us": None}, {"latency_us": 0.0}, {"latency_us": math.inf},
    {"latency_kind": "predicted"},
    {"tag": "kept", "latency_us": None, "latency_kind": None, "log_ratio": None, "reason": "x"}])
def test_contradictory_trial_cannot_be_created(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        trial(1.0, **fields)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 16), st.integers(0, 16))
def test_resumed_search_continues_as_if_never_ended(seed: int, killed_after: int,
                                                    budget: int) -> None:
    whole = tried(AskTell(BayesianSearch(SPACE, seed), SPACE), budget)
    first = tried(AskTell(BayesianSearch(SPACE, seed), SPACE), min(killed_after, budget))
    again = AskTell(BayesianSearch(SPACE, seed), SPACE)
    again.replay(first)
    assert first + tried(again, budget - len(first), len(first)) == whole


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 16))
def test_resumed_search_with_another_strategy_neither_omits_nor_repeats_a_configuration(
        seed: int, other: int, done: int) -> None:
    first = tried(AskTell(BayesianSearch(SPACE, seed), SPACE), done)
    again = AskTell(BayesianSearch(SPACE, other), SPACE)
    again.replay(first)
    rest = tried(again, 99, len(first))
    keys = [config_key(SPACE, one.config) for one in [*first, *rest]]
    assert len(keys) == len(set(keys)) == SPACE.size
    assert config_key(SPACE, SPACE.default) == keys[0]


class Stubborn:
    """Always proposes the same configuration, which is not the default."""

    def ask(self) -> Config | None:
        return {"A": 8, "B": 0.5, "C": "on"}

    def planned(self) -> list[Config]:
        return []

    def tell(self, config: Config, score: float | None) -> None:
        pass


def test_default_comes_first_and_no_configuration_twice_for_any_strategy() -> None:
    assert [one.config for one in tried(AskTell(Stubborn(), SPACE), 9)] == [SPACE.default,
                                                                            Stubborn().ask()]
