"""Globs over paths relative to the project's top, as the manifest's `edit` and `frozen` use them.

`*` and `?` stay within a folder, `**` does not, `[abc]` is one of these; a glob that names a
folder means everything in it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable


def matches(path: str, globs: Iterable[str]) -> bool:
    return any(_compiled(glob).fullmatch(path) for glob in globs)


def reaches(folder: str, globs: Iterable[str]) -> bool:
    """Tell whether one of the globs may match something below a folder."""
    return any(_reaches(folder.split("/"), _bare(glob).split("/")) for glob in globs)


def _reaches(folder: list[str], glob: list[str]) -> bool:
    for part, wanted in zip(folder, glob, strict=False):
        if "**" in wanted:
            return True
        if not _compiled(wanted).fullmatch(part):
            return False
    return True


def names_exactly(path: str, globs: Iterable[str]) -> bool:
    """Tell whether one of the globs is this very path, spelled out."""
    return any(path == _bare(glob) for glob in globs)


def folder_named(path: str, globs: Iterable[str]) -> str:
    """Return the folder, with its slash, that a glob which matches the path spells out."""
    found = [_spelled_out(_bare(glob)) for glob in globs if matches(path, (glob,))]
    return max(found, key=len, default="")


def _spelled_out(glob: str) -> str:
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
