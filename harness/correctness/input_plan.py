"""Choose the kinds of input on which a candidate is checked, and their layouts in memory."""

from __future__ import annotations

from collections.abc import Sequence

from harness.case import Case

LEAST = 3
LAYOUTS = ("columns", "transposed")


def plan_inputs(classes: Sequence[str], kinds: Sequence[str],
                start: int) -> dict[str, tuple[str, ...]]:
    """Return the distributions of each class; the first of `kinds` (normal) is in every class.

    The others are dealt out cyclically, from a secret `start`, until each was used once and every
    class has at least LEAST, or all there are.
    """
    if not kinds:
        return dict.fromkeys(classes, ())
    first, *others = kinds
    share = min(len(others), max(LEAST - 1, -(-len(others) // max(1, len(classes)))))
    return {name: (first, *(others[(start + index * share + step) % len(others)]
                            for step in range(share)))
            for index, name in enumerate(classes)}


def strided_views(case: Case) -> list[dict[str, object]]:
    """Return a case's tensors; those that may be strided get strided layouts, in alternation."""
    strided = [t["name"] for t in case.tensors if t["strided"]]
    layouts = {name: LAYOUTS[index % 2] for index, name in enumerate(strided)}
    return [{**t, "layout": "columns" if len(t["shape"]) < 2 else layouts[t["name"]]}
            if t["name"] in layouts and t["shape"] else t for t in case.tensors]
