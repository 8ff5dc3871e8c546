"""Kernel time confirms a reported gain, contradicts it or leaves it unclear, case by case."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.benchmark.kernel_time.gain import KernelTimeRuling, compare
from harness.benchmark.kernel_time.profile import KernelLaunches, KernelProfile

Launched = dict[str, tuple[int, float] | tuple[int, float, int] | tuple[int, float, int, float]]
N = 1000


def profile(launched: Launched) -> KernelProfile:
    """Return kernels from launches, mean us and, optionally, blocks per launch and the least us."""
    found = {}
    for name, (launches, us, *more) in launched.items():
        blocks, least = (*more, 64, us)[0] if more else 64, more[1] if len(more) > 1 else us
        found[name] = KernelLaunches(launches=launches, total_ns=round(launches * us * 1000),
                                     least_ns=round(least * 1000), blocks=round(launches * blocks))
    return found


FLUSH: Launched = {"flush": (N, 20.0), "reference": (4, 300.0)}
SOFTMAX: Launched = {"softmax": (N, 30.0), **FLUSH}
CASES: dict[str, tuple[Launched, Launched, KernelTimeRuling, str]] = {
    "a real gain": (SOFTMAX, {**SOFTMAX, "softmax": (N, 22.0)}, "less", ""),
    "renamed": (SOFTMAX, {"quick": (N, 22.0), **FLUSH}, "less", ""),
    "split into two": (SOFTMAX, {"first": (N, 12.0), "then": (N, 9.0), **FLUSH}, "less", ""),
    "split into three launches of one": (
        SOFTMAX, {"part": (3 * N, 7.0), **FLUSH}, "less", ""),
    "two fused into one": (
        {"first": (N, 12.0), "then": (N, 18.0), **FLUSH}, {"both": (N, 22.0), **FLUSH}, "less", ""),
    "one of two, the other as it was": (
        {"forward": (N, 30.0), "back": (N, 60.0)}, {"forward": (N, 20.0), "back": (N, 60.1)},
        "less", ""),
    "launched as often as time allows": (
        SOFTMAX, {"softmax": (1360, 22.0), "flush": (1360, 20.1), "reference": (4, 301.0)},
        "less", ""),
    "as often as time allows, in three launches of one": (
        SOFTMAX, {"part": (3 * 1200, 7.0), "flush": (1200, 20.0)}, "less", ""),
    "one launch is two, and more work": (
        {"gemm": (N, 10.0)}, {"gemm": (970 * 2, 5.15, 32)}, "unclear", "launches per call"),
    "one launch is two, and more work beside a flush": (
        SOFTMAX, {"softmax": (2 * N, 15.5), **FLUSH}, "unclear", "launches per call"),
    "one launch is two of as many blocks, as time allows": (
        SOFTMAX, {"softmax": (2 * 980, 15.5), "flush": (980, 20.0)}, "unclear",
        "launches per call"),
    "an empty kernel twice a call": (
        {"gemm": (N, 30.0)}, {"gemm": (N, 30.9), "empty": (2 * N, 0.1)}, "unclear",
        "launches per call"),
    "no names": ({"": (2 * N, 30.0)}, {"": (2 * N, 24.0)}, "less", ""),
    "forged, the kernels unchanged": (SOFTMAX, SOFTMAX, "unclear", "hardly changed"),
    "forged, unchanged but for noise": (
        SOFTMAX, {"softmax": (N, 30.05), "flush": (N, 20.0), "reference": (4, 290.0)},
        "unclear", "hardly changed"),
    "forged, and slower": (SOFTMAX, {**SOFTMAX, "softmax": (N, 36.0)}, "more", ""),
    "forged, slower and renamed": (SOFTMAX, {"other": (N, 31.0), **FLUSH}, "more", ""),
    "forged, and slower as time allows": (
        SOFTMAX, {"softmax": (830, 36.0), "flush": (830, 20.0), "reference": (4, 300.0)},
        "more", ""),
    "forged, with a kernel more": (SOFTMAX, {**SOFTMAX, "more": (N, 10.0)}, "more", ""),
    "the same, and called more often by its own word": (
        SOFTMAX, {**SOFTMAX, "softmax": (4 * N, 30.0), "flush": (4 * N, 20.0)}, "unclear",
        "more kernels"),
    "hardly any of what is reported": (
        SOFTMAX, {**SOFTMAX, "softmax": (N, 29.0)}, "unclear", "a gain of only 3.4%"),
    "shorter by more launches of it": (
        SOFTMAX, {**SOFTMAX, "softmax": (2 * N, 20.0)}, "unclear", "opposite directions"),
    "three launches of it are one": (
        {"head": (9000, 10.0, 8)}, {"head": (4500, 20.0, 24)}, "unclear", "larger kernels"),
    "fewer kernels a call": (
        {name: (N, 2.0) for name in "abcde"}, {"all": (N, 12.0)}, "unclear", "fewer kernels"),
    "tuned for longer": (
        {"softmax": (N, 30.0)}, {"softmax": (3 * N, 40.0, 64, 22.0)}, "unclear", "tuning runs"),
    "tuned for as long": (
        {"softmax": (N, 30.0)}, {"softmax": (700, 43.0, 64, 22.0)}, "unclear", "tuning runs")}


@pytest.mark.parametrize("name", CASES)
def test_ruling_follows_from_kernel_times(name: str) -> None:
    before, after, ruling, why = CASES[name]
    found = compare(profile(before), profile(after), math.log(1.3))
    assert (found.ruling, why in found.why) == (ruling, True), found
    assert bool(found.why) == (ruling == "unclear")


def test_slower_rows_make_the_ruling_unclear() -> None:
    after = profile({**SOFTMAX, "softmax": (N, 36.0)})
    found = compare(profile(SOFTMAX), after, 0.1, is_even=False)
    assert (found.ruling, found.why) == (
        "unclear", "some rows are reported slower, and may weigh more")


@pytest.mark.parametrize(("reported", "us", "ruling"), [
    (1.015, 29.55, "less"), (1.015, 30.0, "unclear"), (1.015, 30.4, "unclear"),
    (1.015, 30.7, "more"), (1.0, 22.0, "unclear"), (0.9, 36.0, "unclear")])
def test_small_gain_needs_only_a_small_change_of_kernel_time(
        reported: float, us: float, ruling: KernelTimeRuling) -> None:
    after = profile({**SOFTMAX, "softmax": (N, us)})
    assert compare(profile(SOFTMAX), after, math.log(reported)).ruling == ruling


def test_description_has_all_numbers() -> None:
    found = compare(profile(SOFTMAX), profile({"quick": (N, 22.0), **FLUSH}), math.log(1.3))
    assert found.description == (
        "GPU kernel time went from 30 us to 22 us per call (1000 launches of softmax, then 1000 "
        "launches of quick), of the whole run from 51.2 ms to 43.2 ms, by CUPTI; 2 unchanged "
        "kernels do not count")


KERNELS = st.builds(
    lambda launches, least, more, blocks: KernelLaunches(
        launches=launches, total_ns=launches * least + more, least_ns=least,
        blocks=launches * blocks),
    st.integers(1, 10**6), st.integers(1, 10**8), st.integers(0, 10**9), st.integers(1, 10**5))
PROFILES = st.dictionaries(st.sampled_from("abcdef"), KERNELS, min_size=1)


@given(PROFILES, PROFILES, st.floats(-2, 2))
def test_any_two_profiles_can_be_compared(before: KernelProfile, after: KernelProfile,
                                          gain: float) -> None:
    found = compare(before, after, gain)
    assert bool(found.why) == (found.ruling == "unclear")
    assert found.ruling == "unclear" or gain > 0
    if found.ruling == "more":
        assert found.after.call_ns > found.before.call_ns or \
            found.after.total_ns > found.before.total_ns
    assert compare(before, before, gain).ruling == "unclear" and found.description
