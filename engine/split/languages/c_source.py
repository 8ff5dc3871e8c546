"""A C source as the things it has at file scope: what each defines, what each uses.

Only as much of C is understood as renaming copies needs. Strings and comments are no names; a
conditional block at file scope is one thing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from harness.errors import InputError
from harness.formats.text import words

_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\r\f\v\n]|\\\r?\n)+)|(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<number>\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.])*)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<mark>->|.)", re.DOTALL | re.ASCII)
_DIRECTIVE = re.compile(r"[ \t]*#(?:\\\r?\n|/\*.*?\*/|[^\n])*", re.DOTALL)
_WORD = re.compile(r"[ \t]*#\s*(\w+)")
_DEFINED = re.compile(r"[ \t]*#\s*define\s+(\w+)")
_REST = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*|//[^\n]*)?(?:\r?\n|\Z)")
_OPEN, _CLOSE = "([{", ")]}"
_NOT_NAMES = words("""
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while _Bool __attribute__ __restrict __restrict__ __inline
    __inline__""")


class SourceToken(NamedTuple):
    kind: str
    text: str
    begin: int


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing at file scope: `begin` to `end` in the source, comments before it left out.

    Of a function `head` is what stands before its name, and `params` what is between the
    parentheses; a `static` one is called from this file alone.
    """

    begin: int
    end: int
    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    function: str = ""
    head: str = ""
    params: str = ""
    static: bool = False


def items(source: str) -> tuple[Item, ...]:
    """Return what a source has at file scope, in order. Raises InputError where it cannot tell."""
    return tuple(_items(source))


def tokens(text: str) -> Iterator[SourceToken]:
    """Yield every token, space and comments too."""
    for found in _TOKEN.finditer(text):
        yield SourceToken(found.lastgroup or "mark", found[0], found.start())


def renamed(text: str, name_of: Callable[[str], str]) -> str:
    """Return the text with its names replaced, but for those of a struct's members."""
    return "".join(name_of(token.text) if token.kind == "name" and not member else token.text
                   for token, member in _with_members(text))


def names(text: str) -> frozenset[str]:
    """Return the names in a text, but for those of a struct's members."""
    return frozenset(token.text for token, member in _with_members(text)
                     if token.kind == "name" and not member) - _NOT_NAMES


def _with_members(text: str) -> Iterator[tuple[SourceToken, bool]]:
    """Yield every token, and whether it names a struct's member."""
    before = ""
    for token in tokens(text):
        yield token, before in (".", "->")
        if token.kind not in ("space", "comment"):
            before = token.text


def _items(source: str) -> Iterator[Item]:
    at = 0
    while (at := _skipped(source, at)) < len(source):
        line = source.rfind("\n", 0, at) + 1
        if source[at] == "#":
            begin, end = line, _directive_end(source, line)
            text = source[begin:end]
            yield Item(begin=begin, end=end, text=text, defines=frozenset(_defined(text)),
                       uses=names(text))
        else:
            begin, end = at, _declaration_end(source, at)
            rest = _REST.match(source, end)
            end = end if rest is None else rest.end()
            yield _declaration(source, begin, end)
        at = end


def _skipped(source: str, at: int) -> int:
    """Return where the next thing begins, after space and comments."""
    while at < len(source) and (found := _TOKEN.match(source, at)) is not None \
            and found.lastgroup in ("space", "comment"):
        at = found.end()
    return at


def _directive_end(source: str, at: int) -> int:
    """Return where a preprocessor line ends, or the conditional block that it begins."""
    depth = 0
    while True:
        found = _DIRECTIVE.match(source, at)
        if found is None:
            end = source.find("\n", at)
            at = len(source) if end < 0 else end + 1
        else:
            word = (_WORD.match(found[0]) or ["", ""])[1]
            depth += word in ("if", "ifdef", "ifndef")
            depth -= word == "endif"
            at = min(len(source), found.end() + 1)
        if depth <= 0:
            return at
        if at >= len(source):
            raise InputError("an #if at file scope is not closed", where=_place(source, at))


def _declaration_end(source: str, at: int) -> int:
    """Return where a declaration ends at its semicolon, or a function at its brace."""
    opened: list[str] = []
    plain = True
    while at < len(source):
        found = _TOKEN.match(source, at)
        assert found is not None  # the last alternative takes any character
        text, at = found[0], found.end()
        if found.lastgroup != "mark":
            continue
        if text in _OPEN:
            opened.append(text)
        elif text in _CLOSE:
            if not opened or _OPEN.index(opened.pop()) != _CLOSE.index(text):
                raise InputError("a bracket does not match", where=_place(source, at))
            if text == "}" and not opened and plain:
                return at
        elif not opened and text == "=":
            plain = False
        elif not opened and text == ";":
            return at
        if text == "{" and len(opened) == 1 and not _is_body(source, at):
            plain = False
    raise InputError("a declaration does not end", where=_place(source, at))


def _is_body(source: str, at: int) -> bool:
    """Tell whether the brace before `at` opens a function's body: it follows a parenthesis."""
    before = source[:at - 1]
    while True:
        shorter = re.sub(r"(?:\s+|/\*(?:(?!\*/).)*\*/|//[^\n]*)\Z", "", before, flags=re.DOTALL)
        if shorter == before:
            return before.endswith(")")
        before = shorter


def _declaration(source: str, begin: int, end: int) -> Item:
    text = source[begin:end]
    found = _function(text)
    if found is not None:
        name, head, params = found
        return Item(begin=begin, end=end, text=text, defines=frozenset([name]), uses=names(text),
                    function=name, head=head, params=params, static="static" in head.split())
    return Item(begin=begin, end=end, text=text, defines=frozenset(_declared(text)),
                uses=names(text))


def _function(text: str) -> tuple[str, str, str] | None:
    """Return a function's name, what is before it and its parameters; None for what is none."""
    shown = [token for token in tokens(text) if token.kind not in ("space", "comment")]
    last = "".join(token.text for token in shown[-1:])
    if last != "}":
        return None
    for place, token in enumerate(shown[:-1]):
        if token.text in ("=", "{"):
            return None
        if token.kind != "name" or token.text in _NOT_NAMES or shown[place + 1].text != "(":
            continue
        close = _closed(shown, place + 1)
        if close + 1 < len(shown) and shown[close + 1].text == "{":
            return (token.text, text[:token.begin],
                    text[shown[place + 1].begin + 1:shown[close].begin])
    return None


def _closed(shown: Sequence[SourceToken], place: int) -> int:
    depth = 0
    for index in range(place, len(shown)):
        depth += shown[index].text == "("
        depth -= shown[index].text == ")"
        if not depth:
            return index
    return len(shown)


def _declared(text: str) -> Iterator[str]:
    """Yield the names that a declaration without a body gives a meaning to, enumerators too."""
    shown = [token for token in tokens(text) if token.kind not in ("space", "comment")]
    in_enum, in_value, depth, last = False, False, 0, ""
    for token, after in pairwise(shown):
        told = depth == 0 or (in_enum and depth == 1)
        if token.kind == "name" and token.text not in _NOT_NAMES and not in_value:
            tag = last in ("struct", "union", "enum") and after.text == "{"
            if tag or (told and after.text in (";", ",", "=", "[", "(", "}")):
                yield token.text
        if told and token.text in ("=", ","):
            in_value = token.text == "="
        if token.text == "{":
            in_enum = in_enum or (depth == 0 and _of_enum(shown, token))
        depth += token.text in _OPEN
        depth -= token.text in _CLOSE
        in_value = in_value and not (in_enum and token.text == "}")
        if token.kind == "name":
            last = token.text


def _of_enum(shown: Sequence[SourceToken], brace: SourceToken) -> bool:
    place = shown.index(brace)
    return any(token.text == "enum" for token in shown[max(0, place - 2):place])


def _defined(text: str) -> Iterator[str]:
    """Yield what preprocessor lines define, and the functions between them."""
    kept = []
    for line in text.splitlines(keepends=True):
        found = _DEFINED.match(line)
        if found is not None:
            yield found[1]
        if not line.lstrip().startswith("#"):
            kept.append(line)
    with contextlib.suppress(InputError):  # such as a brace that another block closes
        for item in _items("".join(kept)):
            yield from item.defines


def _place(source: str, at: int) -> str:
    return f"line {source.count(chr(10), 0, at) + 1}"
