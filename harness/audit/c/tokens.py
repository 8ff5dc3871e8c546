"""Splits C and CUDA sources into tokens, without comments, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, cast

Kind = Literal["name", "number", "string", "char", "mark", "directive"]
MAX_TOKENS = 400_000
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\f\v]+)|(?P<line>\n)"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/|/\*.*)"
    r"|(?P<raw>(?:u8|[uUL])?R\"(?P<delimiter>[^ ()\\\t\n]{0,16})\(.*?\)(?P=delimiter)\")"
    r"|(?P<open>(?:u8|[uUL])?R\"[^ ()\\\t\n]{0,16}\(.*)"
    r"|(?P<string>(?:u8|[uUL])?\"(?:[^\"\\\n]|\\.)*\"?)"
    r"|(?P<char>[uUL]?'(?:[^'\\\n]|\\.)*'?)"
    r"|(?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[0-9A-Za-z_.])*)"
    r"|(?P<name>[A-Za-z_$\u0080-\U0010ffff][0-9A-Za-z_$\u0080-\U0010ffff]*)"
    r"|(?P<mark>##|%:%:|%:|->|==|!=|<=|>=|&&|\|\||<<|>>|::|.)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,8})|([0-7]{1,3})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


@dataclass(frozen=True)
class Token:
    """One token at a line (1-based); the text of a string is unescaped and without quotes.

    `directive` numbers the token's preprocessor line, 0 outside of any.
    """

    kind: Kind
    text: str
    line: int
    directive: int = 0


def tokens(source: str) -> list[Token]:
    """Split a source into tokens; text that is not C becomes marks."""
    return list(_joined(_split(source)))


def _split(source: str) -> Iterator[Token]:
    text, starts = _spliced(source.replace("??/\n", "\\\n").replace("\0", " "))
    line, at, directive, directives, is_line_start, count = 1, 0, 0, 0, True, 0
    skipped = 0
    while at < len(text) and count < MAX_TOKENS:
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes any character
        group, word = match.lastgroup or "mark", match[0]
        group = "raw" if group in ("delimiter", "open") else group
        while skipped < len(starts) and starts[skipped] < at:
            line, skipped = line + 1, skipped + 1
        if group == "line":
            directive, is_line_start = 0, True
        elif group == "mark" and word in ("#", "%:") and is_line_start:
            directives += 1
            directive, is_line_start = directives, False
            yield Token("directive", "#", line, directive)
        elif group not in ("space", "comment"):
            is_line_start = False
            count += 1
            yield _token(group, word, line, directive)
        line += word.count("\n")
        at = match.end()


def _spliced(source: str) -> tuple[str, list[int]]:
    """Return the text without line splices, and the positions of the removed line breaks."""
    parts, starts, at, length = [], [], 0, 0
    for match in _SPLICE.finditer(source):
        parts.append(source[at:match.start()])
        length += match.start() - at
        starts.append(length)
        at = match.end()
    return "".join([*parts, source[at:]]), starts


def _token(group: str, word: str, line: int, directive: int) -> Token:
    if group == "raw":
        return Token("string", word.partition("(")[2].rpartition(")")[0], line, directive)
    if group == "string":
        body = word.partition('"')[2]
        return Token("string", unescaped(body.removesuffix('"')), line, directive)
    return Token(cast(Kind, group), "##" if word == "%:%:" else word, line, directive)


def _joined(tokens: Iterator[Token]) -> Iterator[Token]:
    """Join adjacent strings, as the compiler does."""
    for (kind, directive), group in groupby(tokens, lambda t: (t.kind == "string", t.directive)):
        if kind:
            first, *others = group
            text = "".join(t.text for t in (first, *others))
            yield Token("string", text, first.line, directive)
        else:
            yield from group


def unescaped(body: str) -> str:
    """Return the unescaped contents of a C string."""
    return _ESCAPE.sub(_unescape_match, body)


def _unescape_match(match: re.Match[str]) -> str:
    hexadecimal, octal, unicode, letter = match.groups()
    if letter is not None:
        return _PLAIN.get(letter, letter)
    code = int(hexadecimal or unicode, 16) if octal is None else int(octal, 8)
    return chr(code) if code < 0x110000 else "?"
