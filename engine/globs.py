"""Globs over paths relative to the project, for the manifest's `edit` and `frozen`.

`*` and `?` match within a folder, `**` across folders, `[abc]` one of these characters; a glob that
matches a folder matches everything in it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable


def matches(path: str, globs: Iterable[str]) -> bool:
    """Return whether one of the globs matches a path."""
    return any(_compiled(glob).fullmatch(path) for glob in globs)


def reaches(folder: str, globs: Iterable[str]) -> bool:
    """Return whether one of the globs may match something below a folder."""
    def reaches_below(glob: str) -> bool:
        for part, pattern in zip(folder.split("/"), _bare(glob).split("/"), strict=False):
            if "**" in pattern:
                return True
            if not _compiled(pattern).fullmatch(part):
                return False
        return True

    return any(map(reaches_below, globs))


def names_exactly(path: str, globs: Iterable[str]) -> bool:
    """Return whether one of the globs is exactly this path."""
    return any(path == _bare(glob) for glob in globs)


def folder_named(path: str, globs: Iterable[str]) -> str:
    """Return the longest folder, ending in "/", that a matching glob names before its wildcards."""
    folders = [_literal_folder(_bare(glob)) for glob in globs if matches(path, (glob,))]
    return max(folders, key=len, default="")


def _literal_folder(glob: str) -> str:
    literal = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    return glob + "/" if literal == glob else literal[: literal.rfind("/") + 1]


def _bare(glob: str) -> str:
    return glob.removeprefix("./").rstrip("/")


@functools.lru_cache(1024)
def _compiled(glob: str) -> re.Pattern[str]:
    bare, at, parts = _bare(glob), 0, []
    while at < len(bare):
        if bare.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif bare.startswith("**", at):
            parts.append(".*")
            at += 2
        elif (end := bare.find("]", at + 2)) > 0 and bare[at] == "[":
            inside = bare[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            parts.append(f"[{'^' + inside[1:] if inside[0] == '!' else inside}]")
            at = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(bare[at], re.escape(bare[at])))
            at += 1
    return re.compile("".join(parts) + "(?:/.*)?", re.DOTALL)
