"""Which class is checked on which kinds of input: everything once in a verdict, at little cost."""

from __future__ import annotations

from collections.abc import Sequence

LEAST = 3


def plan_inputs(classes: Sequence[str], kinds: Sequence[str],
                start: int) -> dict[str, tuple[str, ...]]:
    """Return each class's kinds of input, the first of `kinds` (normal) with every class.

    The others are dealt out in turn, from a `start` that nobody can know beforehand, until each
    was given once and every class has at least LEAST.
    """
    if not kinds:
        return dict.fromkeys(classes, ())
    first, *others = kinds
    share = min(len(others), max(LEAST - 1, -(-len(others) // max(1, len(classes)))))
    return {name: (first, *(others[(start + index * share + step) % len(others)]
                            for step in range(share)))
            for index, name in enumerate(classes)}
