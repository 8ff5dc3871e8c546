"""One rule says whether a class is faster, slower or uncertain, wherever it is shown."""

from __future__ import annotations

import math

import pytest

from harness.timing.outcome import describe_row, row_interval
from harness.verdict import ClassOutcome, Row
from kopt_tui.snapshot import phrases, verdict_words


def row(outcome: ClassOutcome, ratio: float, spread: float) -> Row:
    log = math.log(ratio)
    return Row(config_class="odd", correct=True, outcome=outcome, latency_us=5.0, log_ratio=log,
               low=log - spread, high=log + spread, stderr=0.01, pairs=6)


@pytest.mark.parametrize(("shown", "words", "outcome", "speedup"), [
    (row("faster", 1.123, 0.02), "12.3% faster", "✓ faster", "1.12x [1.10, 1.15]"),
    (row("slower", 0.207, 0.02), "4.83x slower", "▼ slower", "0.21x [0.20, 0.21]"),
    (row("tie", 3.67, 8.0), "uncertain", "~ uncertain", "uncertain"),
    (row("tie", 0.79, 0.3), "uncertain", "~ uncertain", "uncertain [0.59, 1.07]"),
    (row("tie", 0.998, 0.01), "tie", "= tie", "1.00x [0.99, 1.01]"),
])
def test_class_outcome_is_worded_alike_everywhere(shown: Row, words: str, outcome: str,
                                                  speedup: str) -> None:
    assert describe_row(shown) == words
    cells = verdict_words.class_cells(shown)
    assert (cells["outcome"], cells["change"], cells["speedup"]) == (outcome, words, speedup)


def test_certain_loss_is_shown_with_the_interval_that_decided_it() -> None:
    """The verdict's own interval is wider, as its error rate is a share of the campaign's."""
    loss = row("slower", 0.93, 0.2)
    low, high = row_interval(loss)
    assert low is not None and high is not None and low < high < 0
    assert verdict_words.class_cells(loss)["speedup"] == "0.93x [0.91, 0.95]"


def test_event_of_an_uncertain_verdict_states_only_its_classes() -> None:
    assert phrases.unprefixed("uncertain; odd uncertain") == "odd uncertain"
    assert phrases.unprefixed("uncertain [0.59, 1.07]; odd 4.8% slower") == "odd 4.8% slower"
