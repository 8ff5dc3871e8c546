"""Hides the functions of a C source that its entry does not need.

A change of these would not be measured.
"""

from __future__ import annotations

from engine.split.languages.c_language import C
from engine.split.languages.syntax import unneeded
from harness.errors import InputError


class EntryOnly:
    """A source with comments in place of the bodies of the functions that `entry` does not need.

    Lines keep their numbers, and a comment has the names of its body, so that no new name clashes.
    """

    def __init__(self, source: str, entry: str) -> None:
        self.source = source
        self._bodies: dict[str, str] = {}
        language = C()
        try:
            others = unneeded(language.items(source), entry)
        except InputError:
            return
        for place, item in enumerate(reversed(others)):
            begin, end = source.index("{", item.begin), source.rindex("}", item.begin, item.end) + 1
            body = source[begin:end]
            names, lines = " ".join(sorted(language.names(body))), "\n" * body.count("\n")
            comment = f"{{/* hidden {place}: {names}{lines} */}}"
            self._bodies[comment] = body
            self.source = self.source[:begin] + comment + self.source[end:]

    def restored(self, changed: str) -> str:
        """Return a changed form of the source with all bodies."""
        for comment, body in self._bodies.items():
            changed = changed.replace(comment, body)
        return changed
