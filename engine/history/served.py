"""Which config classes each kernel of a split serves: the first whose condition holds takes one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from engine.split.languages.dispatch import DispatchBlock

MOST = 8
"""Classes that are named of one kernel."""
NONE = "no class that is measured"
_ABOUT = re.compile(r"^\(.*?\), (?=(?:no )?class\b)")
_MORE = re.compile(r" and \d+ more$")
_VALUE = re.compile(r"(?<![^\s,])(\w+)=(-?\d+)(?![^\s,])")


def by_kernel(block: DispatchBlock, classes: Sequence[str]) -> list[str]:
    """Return what each kernel serves, in the order of the dispatch, the old one last; "" where the
    source does not say it.

    Where the names of the classes tell the values that the dispatch asks for, it is asked itself.
    """
    points = {name: {column: int(value) for column, value in _VALUE.findall(name)}
              for name in classes}
    asked = {column for one in block.branches for column in one.condition.columns}
    if points and all(asked <= point.keys() for point in points.values()):
        return _asked(block, points)
    named = [_named(one.note) for one in block.branches]
    seen: set[str] = set()
    served = []
    for told, one in zip(named, block.branches, strict=True):
        served.append(_listed([name for name in told if name not in seen])
                      + "".join(_MORE.findall(one.note)))
        seen.update(told)
    whole = seen <= set(classes) and not any(_MORE.search(one.note) for one in block.branches)
    return [*served, _listed([c for c in classes if c not in seen]) if whole and seen else ""]


def _asked(block: DispatchBlock, points: Mapping[str, Mapping[str, int]]) -> list[str]:
    found: list[list[str]] = [[] for _ in (*block.branches, block)]
    for name, point in points.items():
        taken = next((at for at, one in enumerate(block.branches) if one.condition.holds(point)),
                     len(block.branches))
        found[taken].append(name)
    return [_listed(names) for names in found]


def _named(told: str) -> list[str]:
    """Return the classes that a branch was made for, without what else is told of it."""
    text = _MORE.sub("", _ABOUT.sub("", told))
    if not text.startswith("class "):
        return [] if text in ("", "no class") else [text]
    return text.removeprefix("class ").split(", class ")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{', '.join(names[:MOST])}{more}" if names else NONE
