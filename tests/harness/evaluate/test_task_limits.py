"""A verdict flags what its task leaves open: integers without a range, recorded values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.evaluate import task_limits
from harness.tasks.target import Arg, ConfigClass
from tests.support.kernels.c_case import target

INDEX = Arg(name="index", dtype="int32", shape=("n",))


@pytest.mark.parametrize(("arg", "rules"), [
    (INDEX, ["no-range"]),
    (replace(INDEX, low=0, high=8), []),
    (replace(INDEX, role="output"), []),
    (replace(INDEX, dtype="float32"), []),
    (Arg(name="n", dtype="int64", value="n"), [])], ids=lambda value: str(value)[:40])
def test_integers_without_a_range_are_flagged(arg: Arg, rules: list[str]) -> None:
    assert [found.rule for found in task_limits.findings(replace(target(), args=(arg,)))] == rules


def test_recorded_values_take_the_place_of_a_range() -> None:
    recorded = ConfigClass(name="one", shape={"n": 4}, data={"index": "values:index"})
    found = task_limits.findings(replace(target(), args=(INDEX,), classes=(recorded,)))
    assert [each.rule for each in found] == ["recorded-values"]
