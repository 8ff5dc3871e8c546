"""A patch as its file sections: parsed without losing a byte, so that sections can be dropped.

Patches are bytes in any encoding; here they are text with surrogate escapes, which `data` undoes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from engine.patch_paths import git_line_names, header_name, strip_prefix
from harness.errors import InputError


class Dropped(msgspec.Struct, frozen=True):
    """A section that was left out of a patch, and why."""

    path: str
    reason: str


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """One file's section. Paths are relative to the tree; "" where the file does not exist."""

    text: str
    old_path: str
    new_path: str
    names: tuple[str, ...]
    """Every name that the section's headers mention, with its prefix, as written."""
    old_mode: str = ""
    new_mode: str = ""
    binary: bool = False
    added: int = 0
    removed: int = 0

    @property
    def path(self) -> str:
        return self.new_path or self.old_path

    @property
    def is_new(self) -> bool:
        return not self.old_path

    @property
    def is_deleted(self) -> bool:
        return not self.new_path


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A unified diff; `text` is what was parsed, less the sections that were dropped."""

    files: tuple[FilePatch, ...] = ()
    preamble: str = ""
    dropped: tuple[Dropped, ...] = ()

    @property
    def text(self) -> str:
        return self.preamble + "".join(file.text for file in self.files)

    @property
    def data(self) -> bytes:
        return self.text.encode(errors="surrogateescape")

    def __bool__(self) -> bool:
        return bool(self.files)


def candidate_id(base_tree: str, patch: Patch) -> str:
    """Return the short name of a patch on a tree: the same change is the same candidate."""
    return hashlib.sha256(base_tree.encode() + b"\n" + patch.data).hexdigest()[:12]


def parse(given: str | bytes, where: str = "patch") -> Patch:
    """Parse a unified diff, as git, `diff -u` or a mail make it.

    Text that is no diff stays in the preamble or with the section before it. Raises InputError,
    with the line, where a section is torn.
    """
    text = given if isinstance(given, str) else given.decode(errors="surrogateescape")
    lines = text.split("\n")
    ended = lines.pop() == ""
    starts = list(_section_starts(lines, where))
    edges = [*starts, len(lines)]
    raw = ["\n".join(lines[a:b]) + "\n" for a, b in zip([0, *starts], edges, strict=True) if b > a]
    if not ended:
        last = text.rpartition("\n")[2]
        raw = [*raw[:-1], raw[-1] + last] if raw else [last]
    preamble = raw.pop(0) if raw and (not starts or starts[0] > 0) else ""
    return Patch(files=tuple(_file(section) for section in raw), preamble=preamble)


_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_MODE = re.compile(r"(old mode|new mode|deleted file mode|new file mode) (\d{6})\s*$")
_INDEX_MODE = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+ (\d{6})\s*$")
_BINARY = ("GIT binary patch", "Binary files ")


def _section_starts(lines: list[str], where: str) -> Iterator[int]:
    """Yield the line numbers at which files begin, stepping over hunks by their counts."""
    n, in_header = 0, False
    while n < len(lines):
        line = lines[n]
        if line.startswith(("diff --cc ", "diff --combined ")):
            raise InputError("a merge's combined diff cannot be applied", where=f"{where}:{n + 1}",
                             fix="make it with `git diff BASE`")
        if line.startswith("diff --git "):
            yield n
            in_header = True
        elif line.startswith("--- ") and n + 1 < len(lines) and lines[n + 1].startswith("+++ "):
            if not in_header:
                yield n
            in_header = False
            n += 1
        elif hunk := _HUNK.match(line):
            in_header = False
            n = _after_hunk(lines, n, hunk, where) - 1
        n += 1


def _after_hunk(lines: list[str], start: int, hunk: re.Match[str], where: str) -> int:
    old, new = (1 if count is None else int(count) for count in hunk.groups())
    n = start + 1
    while old > 0 or new > 0:
        sign = lines[n][:1] if n < len(lines) else "end"
        if sign not in (" ", "-", "+", "\\", "", "\r"):
            raise InputError(f"the hunk of line {start + 1} ends early", where=f"{where}:{n + 1}",
                             fix="make the patch with `git diff`")
        old -= sign in (" ", "-", "", "\r")
        new -= sign in (" ", "+", "", "\r")
        n += 1
    if old < 0 or new < 0:
        raise InputError(f"the hunk of line {start + 1} is longer than it says",
                         where=f"{where}:{n}", fix="make the patch with `git diff`")
    if n < len(lines) and lines[n].startswith("\\"):
        n += 1
    return n


def _file(text: str) -> FilePatch:
    lines = text.split("\n")
    names: list[str] = []
    old = new = old_mode = new_mode = ""
    added_file = deleted_file = binary = False
    body = len(lines)
    for n, line in enumerate(lines):
        if line.startswith("diff --git "):
            old, new = git_line_names(line)
            names += [old, new]
        elif line.startswith(("--- ", "rename from ", "copy from ")):
            old = _merged(line, old, names)
        elif line.startswith(("+++ ", "rename to ", "copy to ")):
            new = _merged(line, new, names)
        elif mode := _MODE.match(line):
            if mode[1] in ("old mode", "deleted file mode"):
                old_mode = mode[2]
            else:
                new_mode = mode[2]
            added_file |= mode[1] == "new file mode"
            deleted_file |= mode[1] == "deleted file mode"
        elif mode := _INDEX_MODE.match(line):
            old_mode = new_mode = mode[1]
        elif line.startswith(_BINARY):
            binary, body = True, n
            break
        elif line.startswith("@@ "):
            body = n
            break
    added, removed = (0, 0) if binary else _counts(lines, body)
    absent_old, absent_new = old == "/dev/null" or added_file, new == "/dev/null" or deleted_file
    return FilePatch(
        text=text, names=tuple(dict.fromkeys(name for name in names if name != "/dev/null")),
        old_path="" if absent_old else strip_prefix(old),
        new_path="" if absent_new else strip_prefix(new),
        old_mode=old_mode, new_mode=new_mode, binary=binary, added=added, removed=removed,
    )


def _merged(line: str, known: str, names: list[str]) -> str:
    """Return the name a header line gives; `rename` and `copy` lines have no prefix to strip."""
    name = header_name(line)
    names.append(name)
    return f"a/{name}" if line.startswith(("rename ", "copy ")) else name


def _counts(lines: list[str], body: int) -> tuple[int, int]:
    added = removed = 0
    n = body
    while n < len(lines):
        if hunk := _HUNK.match(lines[n]):
            end = _after_hunk(lines, n, hunk, "patch")
            added += sum(line.startswith("+") for line in lines[n + 1 : end])
            removed += sum(line.startswith("-") for line in lines[n + 1 : end])
            n = end
        else:
            n += 1
    return added, removed
