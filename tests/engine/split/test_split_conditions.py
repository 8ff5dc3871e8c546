"""Tests the conditions of specialised kernels, and which classes get such a kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.split import class_preferences
from engine.split.languages import conditions
from engine.split.languages.conditions import Comparison, Condition, Point
from harness.errors import Refused
from harness.search.trials.trials import ClassGain, ConfigRows, Contender, LoopResult, Trial


def points(text: str) -> list[Point]:
    """Parse `1/16 4/16` as points with the columns a, b and so on."""
    return [dict(zip("abc", map(int, point.split("/")), strict=False)) for point in text.split()]


CASES = {
    "a threshold at the least value inside": ("512 4096", "64 128", "a >= 512"),
    "or at the largest": ("8 16", "1024", "a <= 16"),
    "a threshold, though one value would do for an equality": ("4096", "128 512", "a >= 4096"),
    "an equality where the value is in the middle": ("512", "128 4096", "a == 512"),
    "several in the middle take two thresholds": ("256 512", "128 4096", "a >= 256 && a <= 512"),
    "the column that tells them apart": ("1/64 2/64", "1/16 2/16", "b >= 64"),
    "the wider gap of two columns": ("4/4096", "2/64", "b >= 4096"),
    "of two alike the first": ("4/4", "2/2", "a >= 4"),
    "two columns where no single one does": ("4/4096", "4/64 1/4096", "a >= 4 && b >= 4096"),
    "a corner that is in the middle of one column": (
        "4/512", "4/64 4/4096 1/512", "a >= 4 && b == 512"),
    "negative values": ("-4", "0 4", "a <= -4"),
    "nothing inside": ("", "1", None),
    "nothing outside": ("1", "", None),
    "the same values inside and outside": ("1/2", "1/2", None),
    "what only an `or` would tell apart": ("1 4096", "64", None),
    "rows of one class on both sides of the others": ("1/1 2/2", "1/2 2/1", None),
    "more than two terms": ("4/4/4", "1/4/4 4/1/4 4/4/1", None),
}


@pytest.mark.parametrize("name", CASES)
def test_simplest_condition_is_found(name: str) -> None:
    inside, outside, expected = CASES[name]
    columns = [*points(f"{inside} {outside}")[0]]
    found = conditions.find(points(inside), points(outside), columns)
    assert (None if found is None else str(found)) == expected
    assert found is None or conditions.parse(str(found)) == found


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=6),
       st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=6))
def test_condition_holds_inside_and_never_outside(
        inside: list[tuple[int, int]], outside: list[tuple[int, int]]) -> None:
    mine, theirs = ([{"a": a, "b": b} for a, b in side] for side in (inside, outside))
    found = conditions.find(mine, theirs, ["a", "b"])
    if found is not None:
        assert all(map(found.holds, mine)) and not any(map(found.holds, theirs))


@pytest.mark.parametrize("text", ["", "a", "a > 4", "a >= 4 || b >= 2", "a >= x", "a >= 4 &&b == 2",
                                  "system(1) >= 2 3", "a >= 4.5"])
def test_text_that_is_not_a_condition_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        conditions.parse(text)


OWN, BEST, OTHER, THIRD = {"T": 1}, {"T": 2}, {"T": 3}, {"T": 4}
SIZES = {"short": 8, "middle": 512, "long": 4096}


def result(best: dict[str, int], stderr: float | None = 0.001,
           **contenders: dict[str, float]) -> LoopResult:
    """Return a search's result; `own` are the gains of the source's config, by class."""
    configs = {"own": OWN, "other": OTHER, "third": THIRD}
    return LoopResult(
        best=dict(best), log_ratio=0.1, source="", space_size=4, columns=("context", "impl"),
        trials=(Trial(number=0, config=dict(OWN), correctness="PASS", tag="tried"),),
        classes=tuple(ConfigRows(name=name, cells=((str(size), "c"), (f"{size}.0", "c")))
                      for name, size in SIZES.items()),
        contenders=tuple(Contender(config=dict(configs[name]), gains=tuple(
            ClassGain(config_class=config_class, gain=gain, stderr=stderr, pairs=5)
            for config_class, gain in gains.items())) for name, gains in contenders.items()))


def gains(short: float, middle: float, long: float) -> dict[str, float]:
    return {"short": short, "middle": middle, "long": long}


PREFERENCES = {
    "one class clearly prefers other knobs": (
        result(OWN, other=gains(-0.5, -0.2, 0.3)), ["context >= 4096: long"]),
    "two classes prefer the same": (
        result(OWN, other=gains(-0.5, 0.2, 0.3)), ["context >= 512: middle long"]),
    "two classes prefer different ones": (
        result(OWN, other=gains(-0.5, -0.2, 0.3), third=gains(0.2, -0.2, -0.3)),
        ["context >= 4096: long", "context <= 8: short"]),
    "a variant is shared where a class loses less than the margin": (
        result(OWN, other=gains(-0.5, 0.195, 0.3), third=gains(-0.5, 0.2, -0.3)),
        ["context >= 512: middle long"]),
    "a variant is shared where the loss is within the noise": (
        result(OWN, 0.05, other=gains(-0.5, 0.4, 0.5), third=gains(-0.5, 0.5, 0.4)),
        ["context >= 512: middle long"]),
    "less than the margin": (result(OWN, other=gains(-0.5, -0.2, 0.015)), []),
    "the noise is as large": (result(OWN, 0.2, other=gains(-0.5, -0.2, 0.3)), []),
    "seen once, in screening": (result(OWN, None, other=gains(-0.5, -0.2, 0.3)), []),
    "the common best serves all": (
        result(BEST, own=gains(-0.3, -0.3, -0.3), other=gains(-0.1, 0.01, -0.1)), []),
    "the old kernel is the best of its class: it is the default path": (
        result(BEST, own=gains(-0.3, -0.3, 0.2), other=gains(-0.5, -0.5, 0.19)), []),
    "it hardly beats the old kernel": (
        result(BEST, own=gains(-0.3, -0.3, 0.2), other=gains(-0.5, -0.5, 0.21)), []),
    "classes that the common best serves better stay outside": (
        result(BEST, own=gains(-0.9, -0.9, -0.9), other=gains(-0.2, -0.2, 0.3)),
        ["context >= 4096: long"]),
}


@pytest.mark.parametrize("name", PREFERENCES)
def test_variant_must_beat_common_best_and_old_kernel(name: str) -> None:
    searched, expected = PREFERENCES[name]
    groups = class_preferences.groups(searched, ["context"], 0.02)
    assert [f"{group.condition}: {' '.join(group.classes)}" for group in groups] == expected


KEPT_DEFAULTS = {
    "the common best gets a variant where it beats the old kernel": (
        result(BEST, own=gains(0.3, -0.2, -0.2)), ["context >= 512: middle long"]),
    "and other knobs where they beat both": (
        result(BEST, own=gains(0.3, -0.2, -0.1), other=gains(-0.5, -0.5, 0.2)),
        ["context == 512: middle", "context >= 4096: long"]),
    "knobs that do not beat the old kernel get none": (
        result(BEST, own=gains(0.3, 0.01, 0.3), other=gains(0.1, -0.5, 0.1)), []),
    "without a class that prefers the old kernel, nothing changes": (
        result(BEST, own=gains(-0.3, -0.3, 0.01), other=gains(-0.5, -0.5, 0.2)),
        ["context >= 4096: long"]),
    "a preference within the noise is none": (
        result(BEST, 0.2, own=gains(0.3, -0.5, -0.5)), []),
}


@pytest.mark.parametrize("name", KEPT_DEFAULTS)
def test_class_that_prefers_the_old_kernel_keeps_it_and_the_others_get_variants(name: str) -> None:
    searched, expected = KEPT_DEFAULTS[name]
    searched = class_preferences.against_existing(searched, 0.02)
    groups = class_preferences.groups(searched, ["context"], 0.02)
    assert [f"{group.condition}: {' '.join(group.classes)}" for group in groups] == expected


@pytest.mark.parametrize(("own", "is_better"), [
    (gains(-0.3, -0.3, -0.3), True), (gains(-0.3, 0.0, -0.3), False)])
def test_common_best_is_the_default_where_it_beats_the_old_kernel(own: dict[str, float],
                                                                  is_better: bool) -> None:
    searched = result(BEST, own=own, other=gains(-0.5, -0.2, 0.3))
    groups = class_preferences.groups(searched, ["context"], 0.02)
    assert class_preferences.is_common_best_better(searched, groups, 0.02) == is_better


def test_condition_prefers_columns_that_define_classes() -> None:
    searched = result(OWN, other=gains(-0.5, -0.2, 0.3))
    cells = {"short": ("8", "1"), "middle": ("512", "1"), "long": ("4096", "9999")}
    searched = replace(searched, columns=("context", "seqs"), classes=tuple(
        ConfigRows(name=name, cells=(row,)) for name, row in cells.items()))

    def found(*first: str) -> list[str]:
        groups = class_preferences.groups(searched, ["context", "seqs"], 0.02, first=first)
        return [str(group.condition) for group in groups]

    assert found() == ["seqs >= 9999"] and found("context", "impl") == ["context >= 4096"]


def test_classes_at_both_ends_get_two_variants() -> None:
    groups = class_preferences.groups(result(OWN, other=gains(0.3, -0.2, 0.3)), ["context"], 0.02)
    assert [(group.classes, str(group.condition), group.config) for group in groups] == [
        (("short",), "context <= 8", OTHER), (("long",), "context >= 4096", OTHER)]


def test_class_that_no_parameter_separates_is_refused() -> None:
    with pytest.raises(Refused, match="no condition on a parameter"):
        class_preferences.groups(result(OWN, other=gains(-0.5, -0.2, 0.3)), [], 0.02)


@pytest.mark.parametrize(("cell", "expected"), [
    ("4096", 4096), ("4096.0", 4096), ("-1", -1), ("1e3", 1000), ("0.5", None), ("fp16", None),
    ("", None), ("nan", None), ("inf", None), ("1e300", None)])
def test_only_integral_cells_are_whole_numbers(cell: str, expected: int | None) -> None:
    assert class_preferences.whole_number(cell) == expected


def test_best_of_a_class_has_its_gain() -> None:
    searched = result(BEST, own=gains(-0.1, 0.1, 0.0), other=gains(-0.2, 0.3, -0.2))
    assert searched.best_in("middle")[0] == OTHER and searched.best_in("middle")[1].gain == 0.3
    assert searched.best_in("short")[0] == BEST and searched.best_in("short")[1].gain == 0.0


def test_condition_lists_each_column_once() -> None:
    assert Condition((Comparison("a", ">=", 1), Comparison("a", "<=", 4))).columns == ("a",)
