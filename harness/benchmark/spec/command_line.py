"""Split a manifest's command as a shell does: variables first, then the program; no shell runs."""

from __future__ import annotations

import re
import shlex

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def words(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command sets before its program, and the program with arguments.

    Raises ValueError in a few words if the command is not well quoted or runs nothing.
    """
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
