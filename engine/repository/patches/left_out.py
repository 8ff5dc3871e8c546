"""What a worker's change lost on its way to a candidate, in one line: it may be why it fails."""

from __future__ import annotations

from collections.abc import Iterable

from engine.repository.patches.hygiene import by_product
from engine.repository.patches.patch import Dropped
from harness.formats.text import plain

NAMED = 5
LONGEST = 80
"""Characters of a name."""
_ORDER = {"cache folder": 0, "build folder": 0, "binary": 1}
"""What was most likely meant to stay is told first."""


def told(dropped: Iterable[Dropped]) -> str:
    """Name the files and why, "" if there are none but what runs and compilers leave."""
    found = sorted((one for one in dropped if not by_product(one)),
                   key=lambda one: _ORDER.get(one.reason, 2))
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(f"{plain(one.path, LONGEST)} ({one.reason})" for one in found[:NAMED]) + more
