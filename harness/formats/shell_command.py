"""Commands as people write them: what to execute for each, by one rule for all.

A text that needs a shell (operators, redirections, expansions, globs, a shell's own words) runs by
`sh -c`. Any other is a program with its arguments, and variables set before it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from harness.formats.text import words

SHELL = "/bin/sh"
_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\[^\n]|[^'"\\]+|.""", re.DOTALL)
_NEEDS_SHELL = re.compile(r"[|&;<>()\n*?\[`$\\]|(?:^|[\s=:])[#~]")
_SHELL_WORDS = words(". : ! cd command eval exec exit export set source ulimit umask")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command sets, and what to execute. Raises ValueError."""
    variables, argv = _words(command)
    if needs_shell(command):
        return {}, [SHELL, "-c", command]
    return variables, argv


def needs_shell(command: str) -> bool:
    """Return whether only a shell gives a command its meaning. Raises ValueError."""
    unquoted = _PIECE.sub(_without_quoted, command.strip())
    return bool(_NEEDS_SHELL.search(unquoted)) or _words(command)[1][0] in _SHELL_WORDS


def _without_quoted(piece: re.Match[str]) -> str:
    """Return a piece without characters that quotes or a backslash make plain."""
    text = piece[0]
    if text[0] == '"' and re.search("[$`]", text):
        return "$"
    return "x" if len(text) > 1 and text[0] in "'\"\\" else text


def words_of(command: str) -> list[str]:
    """Return a command's words, also of one for a shell. Raises ValueError."""
    return _words(command)[1]


def fill(command: str, values: Mapping[str, str]) -> str:
    """Replace each {name} of `values`, quoted for its place so that it stays one word; {{ by {."""
    def filled(piece: re.Match[str]) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0][0]
            text = values.get(match[1], match[0])
            if piece[0][0] == "'":
                return text.replace("'", "'\\''")
            return re.sub(r'([\\"$`])', r"\\\1", text) if piece[0][0] == '"' else shlex.quote(text)

        return _PLACEHOLDER.sub(value, piece[0])

    return _PIECE.sub(filled, command)


def placeholders(command: str) -> list[str]:
    """Return the names that `fill` replaces."""
    return [match[1] for match in _PLACEHOLDER.finditer(command) if match[1] is not None]


def _words(command: str) -> tuple[dict[str, str], list[str]]:
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"the command is not well quoted: {str(error).lower()}") from None
    variables: dict[str, str] = {}
    while parts and (match := _ASSIGNMENT.fullmatch(parts[0])):
        variables[match[1]] = match[2]
        parts.pop(0)
    if not parts:
        raise ValueError("the command runs nothing")
    return variables, parts
