"""Changed copies of a kernel's source, most of which compute wrong results."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 8
_OTHER = {"+": "-", "-": "+", "*": "+", "/": "*", "*=": "+="}
_SKIPPED = {
    True: r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*',
    False: r'/\*[\s\S]*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*'}
_LOOP = re.compile(r"\b(?:for|while)\b")
_OPERATOR = r"(?<=[\w)\]] )(?P<operator>[-+*/]=?)(?= [\w(.-])"


def changed(source: str, *, is_python: bool) -> Iterator[tuple[str, str]]:
    """Yield up to MOST changes, spread over the source, as (what is changed, the whole text).

    Each exchanges one arithmetic operator between spaces, outside of comments and texts. Lines with
    a loop's head stay as they are: most changes there never end.
    """
    pattern = re.compile(f"{_SKIPPED[is_python]}|{_OPERATOR}", re.MULTILINE)
    places = [match for match in pattern.finditer(source)
              if (match["operator"] or "") in _OTHER and not _LOOP.search(
                  source, source.rfind("\n", 0, match.start()) + 1, match.start())]
    for match in places[::max(1, -(-len(places) // MOST))]:
        old = match["operator"]
        line = source.count("\n", 0, match.start()) + 1
        yield (f"line {line}: {_OTHER[old]} for {old}",
               source[:match.start()] + _OTHER[old] + source[match.end():])
