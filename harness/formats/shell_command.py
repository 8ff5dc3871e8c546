"""Parse command lines: a program with its arguments, or a text for `sh -c`.

A command that needs a shell (operators, redirections, expansions, globs, built-in words) runs by
`sh -c`. Any other is split into the variables set before it, the program and its arguments.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence

from harness.formats.text import words

SHELL = "/bin/sh"
_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\[^\n]|[^'"\\]+|.""", re.DOTALL)
_NEEDS_SHELL = re.compile(r"[|&;<>()\n*?\[`$\\]|(?:^|[\s=:])[#~]")
_SHELL_WORDS = words(". : ! cd command eval exec exit export set source ulimit umask")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_UNQUOTABLE = {"`": "backticks", "<<": "a here-document", "#": "a comment"}
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command sets, and what to execute. Raises ValueError."""
    if not needs_shell(command):
        return _words(command)
    _, inside = _places(command)
    if unclosed := [end for end in inside if end not in ("", "#", "<<")]:
        raise ValueError(f"the command is not well quoted: no closing {unclosed[-1]}")
    return {}, [SHELL, "-c", command]


def needs_shell(command: str) -> bool:
    """Return whether a command needs a shell. Raises ValueError."""
    unquoted = _PIECE.sub(_without_quoted, command.strip())
    return bool(_NEEDS_SHELL.search(unquoted)) or _words(command)[1][0] in _SHELL_WORDS


def _without_quoted(piece: re.Match[str]) -> str:
    """Return a piece as shell syntax is searched for in it: `x` for quoted or escaped text.

    Double-quoted text with an expansion gives `$`."""
    text = piece[0]
    if text[0] == '"' and re.search("[$`]", text):
        return "$"
    return "x" if len(text) > 1 and text[0] in "'\"\\" else text


def words_of(command: str) -> list[str]:
    """Return a command's words after its variables, even if it needs a shell. Raises ValueError."""
    return _words(command)[1]


def split_words(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a program's words set, also after `env`, and the program."""
    variables, program = _variables(words[list(words[:1]) == ["env"]:])
    return (variables, program) if variables and program else ({}, list(words))


def fill(command: str, values: Mapping[str, str]) -> str:
    """Replace {name} by its value, quoted so that it stays one word there, and {{ }} by { }.

    Raises ValueError where no quoting keeps a value one word.
    """
    constructs, _ = _places(command)

    def value(match: re.Match[str]) -> str:
        if match[1] is None or match[1] not in values:
            return match[0] if match[1] else match[0][0]
        text, construct = values[match[1]], constructs[match.start()]
        if construct in _UNQUOTABLE:
            raise ValueError(f"{match[0]} stands in {_UNQUOTABLE[construct]}, where it cannot be "
                             "quoted: assign it to a variable first")
        if construct == "'":
            return text.replace("'", "'\\''")
        return re.sub(r'([\\"$`])', r"\\\1", text) if construct == '"' else shlex.quote(text)

    return _PLACEHOLDER.sub(value, command)


def _places(command: str) -> tuple[list[str], list[str]]:
    """Return the construct around each character, and the stack of those open at the end.

    A construct is named by its quote, the ")" that ends it, or a key of _UNQUOTABLE; "" is none.
    """
    constructs, inside = list[str](), [""]
    while (at := len(constructs)) < len(command):
        char, construct, width = command[at], inside[-1], 1
        is_plain = construct in ("", ")")
        if construct in _UNQUOTABLE or construct == "'":
            if char == {"#": "\n"}.get(construct, construct):
                inside.pop()
        elif char == "\\":
            width = 2
        elif char == construct:
            inside.pop()
        elif command.startswith("$(", at):
            inside.append(")")
            width = 2
        elif char in '"`' or (is_plain and char == "'"):
            inside.append(char)
        elif is_plain and char == "(":
            inside.append(")")
        elif is_plain and command.startswith("<<", at):
            inside.append("<<")
        elif is_plain and char == "#" and (not at or command[at - 1] in " \t\n;|&("):
            inside.append("#")
        constructs += [construct] * width
    return constructs, inside


def placeholders(command: str) -> list[str]:
    """Return the names that `fill` replaces."""
    return [match[1] for match in _PLACEHOLDER.finditer(command) if match[1] is not None]


def _words(command: str) -> tuple[dict[str, str], list[str]]:
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"the command is not well quoted: {str(error).lower()}") from None
    variables, program = _variables(parts)
    if not program:
        raise ValueError("the command runs nothing")
    return variables, program


def _variables(parts: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that words set first, and the other words."""
    matches = list(itertools.takewhile(bool, map(_ASSIGNMENT.fullmatch, parts)))
    return {match[1]: match[2] for match in matches if match}, list(parts[len(matches):])
