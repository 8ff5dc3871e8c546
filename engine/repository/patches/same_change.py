"""Whether two patches make the same change, perhaps at other places or on other bases."""

from __future__ import annotations

from engine.repository.patches import patch
from harness.errors import KoptError

ChangedLines = frozenset[tuple[str, str]]
"""Of each file of a change its path and its changed lines, without their places."""


def changed_lines(data: bytes) -> ChangedLines | None:
    """Return what a patch changes, None if it cannot be read."""
    try:
        files = patch.parse(data).files
    except KoptError:
        return None
    return frozenset((file.path, _of_section(file.text)) for file in files)


def _of_section(section: str) -> str:
    head, mark, body = section.partition("\n@@ ")
    lines = f"@@ {body}".splitlines(keepends=True) if mark else []
    return "".join(line for line in lines if line[0] in "+-") or head
