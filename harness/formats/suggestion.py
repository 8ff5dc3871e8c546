"""Suggests the name that a mistyped one may mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str], *, listed: bool = False) -> str:
    """Return "did you mean 'x'?", or all names if they are few and not yet `listed`."""
    names = list(known)
    folded = {original.lower(): original for original in names}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return "" if listed or len(names) > 12 else f"known: {', '.join(names)}"
