"""Watches module imports and wraps the counted function with a counter."""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader

from . import job
from .cells import CellReader
from .tally import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

KEPT = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__")


_tally = Tally(job.FOLDER)
_compiling: list[Callable[[], bool]] = [bool]
"""Returns whether torch compiles: False until torch is loaded, then torch's own function."""


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
    found = vars(holder).get(name) if hasattr(holder, "__dict__") else None
    if isinstance(found, (staticmethod, classmethod)):
        if (counted := _counted(found.__func__)) is not None:
            setattr(holder, name, type(found)(counted))
    elif found is None:
        _tally.note(f"{module.__name__} has no function {job.FUNCTION}")
    elif (counted := _counted(found)) is not None:
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

    _dress(counted, function)
    return counted


def _dress(counted: Any, function: Any) -> None:
    """Copy a function's metadata, and the public methods of its type, to the wrapper."""
    for name in KEPT:
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
