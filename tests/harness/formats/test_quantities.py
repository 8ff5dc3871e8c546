"""Speedups, percentages, latencies, durations and sizes have one format each."""

from __future__ import annotations

import math

import pytest

from harness.formats import quantities


@pytest.mark.parametrize(("value", "low", "high", "alpha", "text"), [
    (None, None, None, None, ""),
    (12.04, None, None, None, "12.0x"),
    (1.524, 1.49, 1.553, None, "1.52x [1.49, 1.55]"),
    (0.8, 0.79, 0.81, 0.05, "0.80x [0.79, 0.81] at alpha 0.05"),
    (21.75, 21.46, 22.06, None, "21.8x [21.5, 22.1]"),
    (120.0, None, None, 0.05, "120x"),
    (1.0, 0.99, 1.01, None, "1.00x [0.99, 1.01]"),
    (0.99, 0.93, 1.07, None, "uncertain [0.93, 1.07]"),
    (0.5, 1e-9, 535.0, 0.05, "uncertain"),
])
def test_speedup_has_three_digits_and_its_interval(
        value: float | None, low: float | None, high: float | None, alpha: float | None,
        text: str) -> None:
    assert quantities.speedup(value, low, high, alpha) == text


def test_log_ratio_is_shown_as_speedup_and_change() -> None:
    log = math.log(1.25)
    assert quantities.speedup_of_log(log, math.log(1.2), math.log(1.3)) == "1.25x [1.20, 1.30]"
    assert quantities.change(log) == "25.0% faster"
    assert quantities.gain(log) == "1.25x (25.0% faster)"
    assert quantities.gain(0.0) == "1.00x"
    assert quantities.gain(log, -0.1, 0.6) == "uncertain"
    assert quantities.gain(None) == "not measured"


def test_latency_keeps_three_digits_and_chooses_its_unit() -> None:
    assert [quantities.latency(us) for us in (5.1, 91.84, 212.0, 1500.0, 2.5e6, None)] == \
        ["5.10 us", "91.8 us", "212 us", "1.50 ms", "2.50 s", ""]
    assert quantities.latency_us(91.84) == "91.840 us"
    assert quantities.latency_us(717941.407) == "717.941 ms"
    assert quantities.latency_us(31415926.5) == "31.416 s"


def test_number_and_noun_agree() -> None:
    assert [quantities.counted(n, "config class") for n in (0, 1, 2)] == \
        ["0 config classes", "1 config class", "2 config classes"]
    assert quantities.counted(1, "trial") == "1 trial" and quantities.counted(3, "row") == "3 rows"


def test_durations_and_sizes_choose_their_unit() -> None:
    assert quantities.countdown(598.2) == "9:58 min"
    assert [quantities.data_size(n) for n in (2048, 3 << 19, 120 << 20, 3 << 29)] == \
        ["2 KiB", "1.5 MiB", "120 MiB", "1.5 GiB"]
