"""Watches module imports and wraps the counted function with a counter."""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader

from . import job
from .tally import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COPIED = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__")
MOST = 1 << 63
LONGEST = 80
"""The most characters of a string argument that is recorded."""


_tally = Tally(job.FOLDER)
_compiling: list[Callable[[], bool]] = [bool]
"""Whether torch compiles: `bool`, which returns False, until torch is loaded."""


def begin() -> None:
    """Start to watch every module import."""
    os.close(os.open(os.path.join(job.FOLDER, "begun"), os.O_CREAT | os.O_WRONLY, 0o600))
    for kind in (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader):
        _watch(kind)


def _watch(kind: Any) -> None:
    load = kind.exec_module

    def exec_module(self: Any, module: Any) -> None:
        load(self, module)
        _loaded(module)

    kind.exec_module = exec_module


def _loaded(module: Any) -> None:
    try:
        if module.__name__ == "torch":
            _compiling[:] = [module.compiler.is_compiling]
        if job.MODULE:
            if module.__name__ == job.MODULE:
                _count(module)
        elif _is_source(getattr(module, "__file__", None)):
            _count(module)
    except Exception as error:
        _tally.note(error)


def _is_source(file: str | None) -> bool:
    try:
        if not file or os.path.samestat(os.stat(file), os.stat(job.FILE)):
            return bool(file)
    except OSError:  # inside an archive, or gone
        return False
    name = os.path.basename(file)
    if name == os.path.basename(job.FILE) and name != "__init__.py":
        _tally.elsewhere(os.path.abspath(file))
    return False


def _count(module: Any) -> None:
    """Replace the function, or a class's method, by one that counts."""
    holder = module
    *path, name = job.FUNCTION.split(".")
    for step in path:
        holder = getattr(holder, step, None)
    member = vars(holder).get(name) if hasattr(holder, "__dict__") else None
    if isinstance(member, (staticmethod, classmethod)):
        if (counted := _counted(member.__func__)) is not None:
            setattr(holder, name, type(member)(counted))
    elif member is None:
        _tally.note(f"{module.__name__} has no function {job.FUNCTION}")
    elif (counted := _counted(member)) is not None:
        setattr(holder, name, counted)


def _counted(function: Any) -> Any:
    """Return a counting wrapper of a function, None if it cannot be wrapped."""
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if isinstance(function, type) or hasattr(function, "__getitem__") or not callable(function) \
            or flags & 0x280:  # a coroutine or an asynchronous generator
        _tally.note(f"{job.FUNCTION} is not a function whose calls can be counted: "
                    f"{type(function).__name__}")
        return None
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "compiler"):
        _compiling[:] = [torch.compiler.is_compiling]
    read = CellReader(function, job.ARGS, _tally)
    _tally.begin(read.names)

    def counted(*args: Any, **kwargs: Any) -> Any:
        if _compiling[0]():  # else torch.compile would compile the counter as well
            return function(*args, **kwargs)
        key = read.key(args, kwargs)
        result = function(*args, **kwargs)
        _tally.add(key)
        return result

    _copy_metadata(counted, function)
    return counted


def _copy_metadata(counted: Any, function: Any) -> None:
    """Copy a function's metadata, and the public methods of its type, to the wrapper."""
    for name in COPIED:
        try:
            setattr(counted, name, getattr(function, name))
        except (AttributeError, TypeError):
            continue
    if type(function) is not type(counted):
        for name in dir(function):
            if not name.startswith("_"):
                setattr(counted, name, getattr(function, name))
    counted.__dict__.update(getattr(function, "__dict__", {}))
    counted.__wrapped__ = function


class CellReader:
    """Reads the cells of one function's calls; `names` are its arguments' names, in order."""

    def __init__(self, function: Any, requested: tuple[tuple[int, str], ...] | None,
                 tally: Tally) -> None:
        self._tally = tally
        positional, only, defaults, more = parameters(function)
        if requested is None:
            requested = tuple((-1, name) for name in (*positional, *only))
        known = [(place, name) for place, name in requested
                 if place >= 0 or more or name in positional or name in only]
        self.names = tuple(name for _, name in known)
        self._slots = []
        for place, name in known:
            if place < 0:
                place = positional.index(name) if name in positional else sys.maxsize
            parameter = positional[place] if place < len(positional) else name
            self._slots.append((place, parameter, defaults.get(parameter)))

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the cells of a call, None if they cannot be read."""
        try:
            count = len(args)
            return tuple([_cell(args[place] if place < count else kwargs.get(name, default))
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
    is_bound = hasattr(function, "__self__") and hasattr(function, "__func__")
    called = vars(type(function)).get("__call__")
    if not hasattr(function, "__code__") and hasattr(called, "__code__"):
        function, is_bound = called, True
    code = getattr(function, "__code__", None)
    if code is None:
        return [], [], {}, True
    names = list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount])
    positional, only = names[:code.co_argcount], names[code.co_argcount:]
    values = function.__defaults__ or ()
    defaults = {positional[place - len(values)]: value for place, value in enumerate(values)}
    defaults.update(function.__kwdefaults__ or {})
    return positional[1:] if is_bound else positional, only, defaults, bool(code.co_flags & 0x08)
