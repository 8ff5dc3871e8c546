"""A patch as sections, one for each file, parsed without loss so that sections can be dropped.

Patches are bytes in any encoding; here they are text with surrogate escapes, which `data` undoes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from harness.errors import InputError

_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_NEEDS_QUOTES = re.compile(r'[\x00-\x1f"\\\x7f-\U0010ffff]')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def unquote(name: str) -> str:
    """Undo git's quoting of a name ("a/caf\\303\\251.c"); other names are returned unchanged."""
    quoted = _QUOTED.match(name)
    if not quoted:
        return name
    data = bytearray()
    at = 0
    for escape in _ESCAPE.finditer(quoted[1]):
        data += quoted[1][at : escape.start()].encode(errors="surrogateescape")
        code = escape[1]
        data.append(int(code, 8) & 0xFF if len(code) == 3 else _ESCAPES.get(code, ord(code) & 0xFF))
        at = escape.end()
    data += quoted[1][at:].encode(errors="surrogateescape")
    return data.decode(errors="surrogateescape")


def quote(name: str) -> str:
    """Quote a name as git does, if it needs quotes."""
    if not _NEEDS_QUOTES.search(name):
        return name
    escapes = {code: letter for letter, code in _ESCAPES.items()}
    shown = (
        f"\\{escapes[byte]}" if byte in escapes
        else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        for byte in name.encode(errors="surrogateescape")
    )
    return f'"{"".join(shown)}"'


def git_line_names(line: str) -> tuple[str, str]:
    """Return both names of a `diff --git` line, prefixes included.

    Unquoted names may contain spaces. Both names are equal but for the prefix, unless the file was
    renamed: then other lines name both.
    """
    rest = line.removeprefix("diff --git ").rstrip("\r\n")
    if quoted := _QUOTED.match(rest):
        return unquote(quoted[0]), unquote(rest[quoted.end() :].lstrip(" "))
    if rest.endswith('"') and (opening := rest.find(' "')) > 0:
        return rest[:opening], unquote(rest[opening + 1 :])
    splits = [at for at, letter in enumerate(rest) if letter == " "]
    for at in splits:
        old, new = rest[:at], rest[at + 1 :]
        if old == new or strip_prefix(old) == strip_prefix(new):
            return old, new
    middle = splits[0] if splits else len(rest)
    return rest[:middle], rest[middle + 1 :]


def header_name(line: str) -> str:
    """Return the name in a `---`, `+++`, `rename from` or `copy to` line, without a time stamp."""
    first, _, rest = line.rstrip("\r\n").partition(" ")
    if first in ("rename", "copy"):
        rest = rest.partition(" ")[2]
    return unquote(rest) if rest.startswith('"') else rest.split("\t")[0]


def strip_prefix(name: str) -> str:
    """Remove the a/ or b/ that git puts before a name (or c/, i/, w/, o/ with mnemonics)."""
    return name[2:] if len(name) > 2 and name[1] == "/" and name[0] in "abciow" else name


class Dropped(msgspec.Struct, frozen=True):
    """A file that was dropped from a candidate, and why."""

    path: str
    reason: str


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """One file's section. Paths are relative to the tree, "" where the file does not exist."""

    text: str
    old_path: str
    new_path: str
    names: tuple[str, ...]
    """Every name in the section's headers, as written, with its prefix."""
    old_mode: str = ""
    new_mode: str = ""
    binary: bool = False
    renamed: bool = False
    """Moved or copied. Otherwise two different paths are two names of one file."""
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

    @property
    def is_empty(self) -> bool:
        """Whether the section names a file and changes nothing of it."""
        return not (self.added or self.removed or self.binary or self.renamed or self.is_new
                    or self.is_deleted or self.old_mode != self.new_mode)


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A unified diff; `text` is the parsed text without the dropped sections."""

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

    def without(self, reason: Callable[[FilePatch], str]) -> Patch:
        """Drop the sections for which `reason` returns a text; "" keeps a section."""
        reasons = [(file, reason(file)) for file in self.files]
        dropped = tuple(Dropped(file.path, why) for file, why in reasons if why)
        return msgspec.structs.replace(self, dropped=self.dropped + dropped,
                                       files=tuple(file for file, why in reasons if not why))


def candidate_id(base_tree: str, patch: Patch) -> str:
    """Return the short name of a patch on a tree: the same change is the same candidate."""
    return hashlib.sha256(base_tree.encode() + b"\n" + patch.data).hexdigest()[:12]


def parse(content: str | bytes, where: str = "patch") -> Patch:
    """Parse a unified diff as git, `diff -u` or a mail writes it.

    Text that is not a diff stays in the preamble or with the section before it. Raises InputError,
    with the line, for an incomplete section.
    """
    text = content if isinstance(content, str) else content.decode(errors="surrogateescape")
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise InputError("the patch is not valid text", where=where) from None
    lines = _lines(text)
    starts = list(_section_starts(lines, where))
    parts = ["".join(lines[a:b]) for a, b in pairwise([0, *starts, len(lines)])]
    preamble, *sections = parts
    return Patch(files=tuple(_file(section) for section in sections), preamble=preamble)


_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_MODE = re.compile(r"(old mode|new mode|deleted file mode|new file mode) (\d{6})\s*$")
_INDEX_MODE = re.compile(r"index [0-9a-f]+\.\.[0-9a-f]+ (\d{6})\s*$")
_SIGNS = (" ", "-", "+", "\\", "\n", "\r")
"""First characters of a hunk's lines; an editor may have trimmed the space of an empty line."""
_BINARY = ("GIT binary patch", "Binary files ")


def _lines(text: str) -> list[str]:
    """Split at line feeds, which stay. Other line ends belong to the file's contents."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _section_starts(lines: list[str], where: str) -> Iterator[int]:
    """Yield the line numbers at which sections begin, skipping hunks by their counts."""
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
        sign = lines[n][:1] if n < len(lines) else ""
        if sign not in _SIGNS:
            raise InputError(f"the hunk of line {start + 1} ends early", where=f"{where}:{n + 1}",
                             fix="make the patch with `git diff`")
        old -= sign not in "+\\"
        new -= sign not in "-\\"
        n += 1
    uncounted = n < len(lines) and lines[n].startswith(("+", "-")) \
        and not lines[n].startswith(("--- ", "-- "))  # begins the next file or a mail's signature
    if old < 0 or new < 0 or uncounted:
        raise InputError(f"the hunk of line {start + 1} is longer than its header says",
                         where=f"{where}:{n}", fix="make the patch with `git diff`")
    if n < len(lines) and lines[n].startswith("\\"):
        n += 1
    return n


def _file(text: str) -> FilePatch:
    lines, header = _lines(text), _Header()
    body = next((n for n, line in enumerate(lines) if not header.take(line)), len(lines))
    added, removed = (0, 0) if header.binary else _counts(lines, body)
    absent_old = header.added or header.old == "/dev/null"
    absent_new = header.deleted or header.new == "/dev/null"
    names = tuple(dict.fromkeys(name for name in header.names if name != "/dev/null"))
    return FilePatch(
        text=text, names=names, renamed=header.renamed, binary=header.binary,
        old_path="" if absent_old else strip_prefix(header.old),
        new_path="" if absent_new else strip_prefix(header.new),
        old_mode=header.old_mode, new_mode=header.new_mode, added=added, removed=removed,
    )


class _Header:
    """The lines before a section's first hunk; later lines override earlier ones."""

    def __init__(self) -> None:
        self.old = self.new = self.old_mode = self.new_mode = ""
        self.names: list[str] = []
        self.added = self.deleted = self.binary = self.renamed = False

    def take(self, line: str) -> bool:
        """Read one line; False if it ends the header."""
        if line.startswith("diff --git "):
            self.old, self.new = git_line_names(line)
            self.names += [self.old, self.new]
        elif line.startswith(("--- ", "rename from ", "copy from ")):
            self.old = self._name(line)
        elif line.startswith(("+++ ", "rename to ", "copy to ")):
            self.new = self._name(line)
        elif mode := _MODE.match(line):
            if mode[1] in ("old mode", "deleted file mode"):
                self.old_mode = mode[2]
            else:
                self.new_mode = mode[2]
            self.added |= mode[1] == "new file mode"
            self.deleted |= mode[1] == "deleted file mode"
        elif mode := _INDEX_MODE.match(line):
            self.old_mode = self.new_mode = mode[1]
        elif line.startswith(_BINARY):
            self.binary = True
        return not (self.binary or line.startswith("@@ "))

    def _name(self, line: str) -> str:
        name = header_name(line)
        self.names.append(name)
        if line.startswith(("--- ", "+++ ")):
            return name
        self.renamed = True
        return f"a/{name}"  # these lines have no prefix, and strip_prefix must not remove one


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
