"""Where a specialised kernel is taken: conditions on columns, and which classes want one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.split import class_preferences
from engine.split.languages import conditions
from engine.split.languages.conditions import Comparison, Condition, Point
from harness.errors import Refused
from harness.search.trials.trials import ConfigRows, Contender, LoopResult, Showing, Trial


def points(text: str) -> list[Point]:
    """Read `1/16 4/16` as points with columns a and b, of as many as there are numbers."""
    return [dict(zip("abc", map(int, one.split("/")), strict=False)) for one in text.split()]


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
def test_the_simplest_condition_is_found(name: str) -> None:
    inside, outside, wanted = CASES[name]
    columns = [*points(f"{inside} {outside}")[0]]
    found = conditions.find(points(inside), points(outside), columns)
    assert (None if found is None else str(found)) == wanted
    assert found is None or conditions.parse(str(found)) == found


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=6),
       st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=6))
def test_what_is_found_holds_inside_and_never_outside(
        inside: list[tuple[int, int]], outside: list[tuple[int, int]]) -> None:
    mine, theirs = ([{"a": a, "b": b} for a, b in side] for side in (inside, outside))
    found = conditions.find(mine, theirs, ["a", "b"])
    if found is not None:
        assert all(map(found.holds, mine)) and not any(map(found.holds, theirs))


@pytest.mark.parametrize("text", ["", "a", "a > 4", "a >= 4 || b >= 2", "a >= x", "a >= 4 &&b == 2",
                                  "system(1) >= 2 3", "a >= 4.5"])
def test_what_is_no_condition_is_not_read(text: str) -> None:
    with pytest.raises(ValueError):
        conditions.parse(text)


OWN, BEST, OTHER, THIRD = {"T": 1}, {"T": 2}, {"T": 3}, {"T": 4}
SIZES = {"short": 8, "middle": 512, "long": 4096}


def result(best: dict[str, int], stderr: float | None = 0.001,
           **contenders: dict[str, float]) -> LoopResult:
    """Return where a search ended; contenders are gains by class, the source's own is `own`."""
    configs = {"own": OWN, "other": OTHER, "third": THIRD}
    return LoopResult(
        best=dict(best), log_ratio=0.1, source="", space_size=4, columns=("context", "impl"),
        trials=(Trial(number=0, config=dict(OWN), correctness="PASS", tag="tried"),),
        classes=tuple(ConfigRows(name=name, cells=((str(size), "c"), (f"{size}.0", "c")))
                      for name, size in SIZES.items()),
        contenders=tuple(Contender(config=dict(configs[name]), showings=tuple(
            Showing(config_class=one, gain=gain, stderr=stderr, pairs=5)
            for one, gain in gains.items())) for name, gains in contenders.items()))


def gains(short: float, middle: float, long: float) -> dict[str, float]:
    return {"short": short, "middle": middle, "long": long}


WISHES = {
    "one class clearly wants other knobs": (
        result(OWN, other=gains(-0.5, -0.2, 0.3)), ["context >= 4096: long"]),
    "two classes want the same": (
        result(OWN, other=gains(-0.5, 0.2, 0.3)), ["context >= 512: middle long"]),
    "two classes want different ones": (
        result(OWN, other=gains(-0.5, -0.2, 0.3), third=gains(0.2, -0.2, -0.3)),
        ["context >= 4096: long", "context <= 8: short"]),
    "the same will do where it loses less than the margin": (
        result(OWN, other=gains(-0.5, 0.195, 0.3), third=gains(-0.5, 0.2, -0.3)),
        ["context >= 512: middle long"]),
    "the same will do where what it loses is within the noise": (
        result(OWN, 0.05, other=gains(-0.5, 0.4, 0.5), third=gains(-0.5, 0.5, 0.4)),
        ["context >= 512: middle long"]),
    "less than the margin": (result(OWN, other=gains(-0.5, -0.2, 0.015)), []),
    "the noise is as large": (result(OWN, 0.2, other=gains(-0.5, -0.2, 0.3)), []),
    "seen once, in screening": (result(OWN, None, other=gains(-0.5, -0.2, 0.3)), []),
    "the common best will do": (
        result(BEST, own=gains(-0.3, -0.3, -0.3), other=gains(-0.1, 0.01, -0.1)), []),
    "the old kernel is the best of its class: it is the default path": (
        result(BEST, own=gains(-0.3, -0.3, 0.2), other=gains(-0.5, -0.5, 0.19)), []),
    "it beats the common best and hardly the old kernel": (
        result(BEST, own=gains(-0.3, -0.3, 0.2), other=gains(-0.5, -0.5, 0.21)), []),
    "others are kept out though they would gain beside a poor old kernel": (
        result(BEST, own=gains(-0.9, -0.9, -0.9), other=gains(-0.2, -0.2, 0.3)),
        ["context >= 4096: long"]),
}


@pytest.mark.parametrize("name", WISHES)
def test_a_class_wants_what_beats_the_common_best_and_the_old_kernel(name: str) -> None:
    given, wanted = WISHES[name]
    found = class_preferences.groups(given, ["context"], 0.02)
    assert [f"{one.condition}: {' '.join(one.classes)}" for one in found] == wanted


def test_a_condition_is_on_what_classes_are_made_of_if_it_can_be() -> None:
    seen = result(OWN, other=gains(-0.5, -0.2, 0.3))
    cells = {"short": ("8", "1"), "middle": ("512", "1"), "long": ("4096", "9999")}
    given = replace(seen, columns=("context", "seqs"), classes=tuple(
        ConfigRows(name=name, cells=(one,)) for name, one in cells.items()))

    def told(*first: str) -> list[str]:
        return [str(one.condition) for one in
                class_preferences.groups(given, ["context", "seqs"], 0.02, first=first)]

    assert told() == ["seqs >= 9999"] and told("context", "impl") == ["context >= 4096"]


def test_what_one_condition_does_not_hold_takes_two() -> None:
    found = class_preferences.groups(result(OWN, other=gains(0.3, -0.2, 0.3)), ["context"], 0.02)
    assert [(one.classes, str(one.condition), one.config) for one in found] == [
        (("short",), "context <= 8", OTHER), (("long",), "context >= 4096", OTHER)]


def test_a_class_that_no_parameter_tells_from_others_is_not_split_off() -> None:
    with pytest.raises(Refused, match="no condition on a parameter"):
        class_preferences.groups(result(OWN, other=gains(-0.5, -0.2, 0.3)), [], 0.02)


@pytest.mark.parametrize(("cell", "wanted"), [
    ("4096", 4096), ("4096.0", 4096), ("-1", -1), ("1e3", 1000), ("0.5", None), ("fp16", None),
    ("", None), ("nan", None), ("inf", None), ("1e300", None)])
def test_a_column_is_of_whole_numbers(cell: str, wanted: int | None) -> None:
    assert class_preferences.whole_number(cell) == wanted


def test_the_best_of_a_class_is_told_with_its_gain() -> None:
    given = result(BEST, own=gains(-0.1, 0.1, 0.0), other=gains(-0.2, 0.3, -0.2))
    assert given.best_in("middle")[0] == OTHER and given.best_in("middle")[1].gain == 0.3
    assert given.best_in("short")[0] == BEST and given.best_in("short")[1].gain == 0.0


def test_a_condition_names_its_columns_once() -> None:
    assert Condition((Comparison("a", ">=", 1), Comparison("a", "<=", 4))).columns == ("a",)
