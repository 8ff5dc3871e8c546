"""File names in the headers of a patch: git's quoting, prefixes and the ambiguous first line."""

from __future__ import annotations

import re

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
