"""The config classes that each kernel of a split serves, in the order of its dispatch."""

from __future__ import annotations

import pytest

from engine.history.kernel_splits import NONE, classes_by_kernel
from engine.split.languages import conditions
from engine.split.languages.language import Branch, DispatchBlock

MERGED = "(a candidate's own), "


def dispatch_block(*branches: tuple[str, str]) -> DispatchBlock:
    return DispatchBlock(entry="f", default="f_0", at=0, branches=tuple(
        Branch(condition=conditions.parse(condition), kernel=f"f_{n}", note=note)
        for n, (condition, note) in enumerate(branches, 1)))


ROWS = ["rows=1 cols=8", "rows=2 cols=8", "rows=9 cols=8"]


@pytest.mark.parametrize(("rule", "branches", "classes", "served"), [
    ("a class goes to the first kernel whose condition holds",
     [("rows <= 1", f"{MERGED}class rows=1 cols=8"),
      ("rows <= 2", "(ROWS=2), class rows=1 cols=8, class rows=2 cols=8")], ROWS,
     ["rows=1 cols=8", "rows=2 cols=8", "rows=9 cols=8"]),
    ("nothing is left for the old kernel",
     [("rows <= 1", "class rows=1 cols=8"), ("rows >= 2", "class rows=2 cols=8")], ROWS,
     ["rows=1 cols=8", "rows=2 cols=8, rows=9 cols=8", NONE]),
    ("classes whose names hold no values are those that the notes name",
     [("rows <= 1", f"{MERGED}class tall"), ("rows <= 2", "(A=1, B=(2)), class tall, class odd")],
     ["tall", "odd", "flat"], ["tall", "odd", "flat"]),
    ("a later kernel may have lost all of its classes",
     [("rows <= 2", "class tall"), ("rows <= 1", "(A=1), class tall")], ["tall"],
     ["tall", NONE, NONE]),
    ("an incomplete note leaves the default kernel's classes open",
     [("rows <= 2", "(A=1), class a, class b, class c, class d and 2 more")],
     ["a", "b", "c", "d", "e", "f", "g"], ["a, b, c, d and 2 more", ""]),
    ("classes may have other names now", [("rows <= 2", "made by hand")], ["tall"],
     ["made by hand", ""]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_each_class_is_served_by_first_matching_kernel(rule: str, branches: list[tuple[str, str]],
                                                       classes: list[str],
                                                       served: list[str]) -> None:
    assert classes_by_kernel(dispatch_block(*branches), classes) == served, rule
