"""What each kernel of a split is said to serve, in the order in which a call is dispatched."""

from __future__ import annotations

import pytest

from engine.history import served
from engine.history.served import NONE
from engine.split.languages import conditions
from engine.split.languages.dispatch import Branch, DispatchBlock

OWN = "(a candidate's own), "


def block(*branches: tuple[str, str]) -> DispatchBlock:
    return DispatchBlock(entry="f", default="f_0", at=0, branches=tuple(
        Branch(condition=conditions.parse(condition), kernel=f"f_{n}", note=told)
        for n, (condition, told) in enumerate(branches, 1)))


ROWS = ["rows=1 cols=8", "rows=2 cols=8", "rows=9 cols=8"]


@pytest.mark.parametrize(("rule", "branches", "classes", "told"), [
    ("a class goes to the first kernel whose condition holds",
     [("rows <= 1", f"{OWN}class rows=1 cols=8"),
      ("rows <= 2", "(ROWS=2), class rows=1 cols=8, class rows=2 cols=8")], ROWS,
     ["rows=1 cols=8", "rows=2 cols=8", "rows=9 cols=8"]),
    ("nothing is left for the old kernel",
     [("rows <= 1", "class rows=1 cols=8"), ("rows >= 2", "class rows=2 cols=8")], ROWS,
     ["rows=1 cols=8", "rows=2 cols=8, rows=9 cols=8", NONE]),
    ("names that hold no values are those that the source has",
     [("rows <= 1", f"{OWN}class tall"), ("rows <= 2", "(A=1, B=(2)), class tall, class odd")],
     ["tall", "odd", "flat"], ["tall", "odd", "flat"]),
    ("a later kernel may have lost all of its classes",
     [("rows <= 2", "class tall"), ("rows <= 1", "(A=1), class tall")], ["tall"],
     ["tall", NONE, NONE]),
    ("what was cut short says no more than it did",
     [("rows <= 2", "(A=1), class a, class b, class c, class d and 2 more")],
     ["a", "b", "c", "d", "e", "f", "g"], ["a, b, c, d and 2 more", ""]),
    ("classes that have other names now", [("rows <= 2", "made by hand")], ["tall"],
     ["made by hand", ""]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_each_kernel_serves(rule: str, branches: list[tuple[str, str]], classes: list[str],
                                 told: list[str]) -> None:
    assert served.by_kernel(block(*branches), classes) == told, rule
