"""Reads from a call's arguments what identifies its shape: shapes of arrays, and scalars."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .tally import Tally

MOST = 1 << 63
LONGEST = 80
"""The most characters of a string argument that is recorded."""


class CellReader:
    """Reads the cells of one function's calls; `names` are its arguments' names, in order."""

    def __init__(self, function: Any, wanted: tuple[tuple[int, str], ...] | None,
                 tally: Tally) -> None:
        self._tally = tally
        positional, only, defaults, more = parameters(function)
        if wanted is None:
            wanted = tuple((-1, name) for name in (*positional, *only))
        known = [(place, name) for place, name in wanted
                 if place >= 0 or more or name in positional or name in only]
        self.names = tuple(name for _, name in known)
        self._slots = []
        for place, name in known:
            if place < 0:
                place = positional.index(name) if name in positional else sys.maxsize
            given = positional[place] if place < len(positional) else name
            self._slots.append((place, given, defaults.get(given)))

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the cells of a call, None if they cannot be read."""
        try:
            given = len(args)
            return tuple([_cell(args[place] if place < given else kwargs.get(name, default))
                          for place, name, default in self._slots])
        except Exception as error:
            self._tally.note(error)
            return None


def _cell(value: Any) -> Any:
    kind = type(value)
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if -MOST < value < MOST else None
    if kind is str:
        return value if len(value) <= LONGEST else None
    if kind is float:
        return value if value - value == 0 else repr(value)
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(value, type):
        return None
    if not isinstance(shape, tuple):
        shape = tuple(shape)
    if not shape and kind.__module__ == "numpy":
        return _cell(value.item())
    return shape


def parameters(function: Any) -> tuple[list[str], list[str], dict[str, Any], bool]:
    """Return a function's positional and keyword-only parameters, defaults, and if it has **kwargs.

    Does the same as inspect.signature, which imports modules that the program may shadow.
    """
    for _ in range(100):
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    bound = hasattr(function, "__self__") and hasattr(function, "__func__")
    called = vars(type(function)).get("__call__")
    if not hasattr(function, "__code__") and hasattr(called, "__code__"):
        function, bound = called, True
    code = getattr(function, "__code__", None)
    if code is None:
        return [], [], {}, True
    names = list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
    positional, only = names[:code.co_argcount], names[code.co_argcount:]
    values = function.__defaults__ or ()
    defaults = {positional[place - len(values)]: value for place, value in enumerate(values)}
    defaults.update(function.__kwdefaults__ or {})
    return positional[1:] if bound else positional, only, defaults, bool(code.co_flags & 0x08)
