"""A command as a manifest has it: words as a shell takes them, variables first, and no shell."""

from __future__ import annotations

import re
import shlex

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def words(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a command sets before its program, and the program with arguments.

    Raises ValueError in a few words where it is not well quoted, or runs nothing.
    """
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"the command is not well quoted: {str(error).lower()}") from None
    assigned: dict[str, str] = {}
    while parts and (found := _ASSIGNED.fullmatch(parts[0])):
        assigned[found[1]] = found[2]
        parts.pop(0)
    if not parts:
        raise ValueError("the command runs nothing")
    return assigned, parts
