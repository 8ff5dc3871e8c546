"""Watches the calls of one function: arguments, what it writes to, what it returns, who calls it.

A call is recognised by its code, not by its name, so that aliases, decorators and scripts that call
their own function are seen. Calls in other threads are not seen.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref

from . import callers, containers, job, launched_files
from .callers import write
from .observed import (
    contents,
    copies,
    describe,
    digest,
    integers,
    is_tensor,
    kind,
    same_memory,
    torch_module,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_SHAPES = 4096
SAMPLES = 3
"""Calls of one shape whose contents are read."""
MOST_SAMPLES = 400
MOST_RECORDED = 32
"""Shapes whose integer values are recorded."""
VARARGS, KEYWORDS = 0x04, 0x08

_inside = [False]
_sources: dict[str, bool] = {}
_shapes: dict[Any, list[int]] = {}
"""By shape: its number, its calls, and how many of them were sampled."""
_samples = [0]
_made: weakref.WeakKeyDictionary[Any, tuple[list[str], list[Any], list[str]]] = \
    weakref.WeakKeyDictionary()
"""By object of the watched class: its constructor's arguments, and those passed by name only."""


def begin() -> None:
    """Start to watch this process."""
    if job.ON_CPU:
        _prepare("cpu_as_cuda", "use_always")
    if job.INTERPRET:
        _prepare("interpret", "prepare")
    os.close(os.open(os.path.join(job.FOLDER, "begun"), os.O_CREAT | os.O_WRONLY, 0o600))
    atexit.register(_finish)
    sys.settrace(_trace)


def _prepare(module: str, function: str) -> None:
    try:
        patches = __import__(f"{__package__}.{module}", fromlist=[module])
    except ImportError:  # no torch or no Triton here
        return
    getattr(patches, function)()


def _trace(frame: Any, event: str, argument: Any) -> Any:
    code = frame.f_code
    if _inside[0]:
        launched_files.record(frame)
    if job.OWNER and code.co_name == "__init__":
        _record_constructor(frame)
    if code.co_firstlineno not in job.LINES or code.co_name != job.FUNCTION or _inside[0] \
            or not _is_source(code.co_filename) or _compiles():
        return None
    try:
        return TracedCall(frame)
    except Exception as error:
        write("note", text=f"{type(error).__name__}: {error}"[:300])
        return None


def _record_constructor(frame: Any) -> None:
    """Keep the arguments with which an object of the watched class is made."""
    try:
        names, values, keywords = _arguments(frame)
        kind = type(values[0])
        if kind.__qualname__ == job.OWNER and getattr(
                kind.__init__, "__code__", None) is frame.f_code:
            _made[values[0]] = names[1:], values[1:], keywords
    except (TypeError, IndexError, KeyError):  # no object, or one without weak references
        return


def _arguments(frame: Any) -> tuple[list[str], list[Any], list[str]]:
    """Return a call's arguments by name, and the names that can be passed by name only."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    values = [frame.f_locals[name] for name in names]
    keywords = list(code.co_varnames[code.co_argcount:count])
    if code.co_flags & VARARGS:
        name = code.co_varnames[count]
        more = list(frame.f_locals[name])
        at = code.co_argcount
        names[at:at] = [f"{name}_{index}" for index in range(len(more))]
        values[at:at] = more
    if code.co_flags & KEYWORDS:
        extra = frame.f_locals[code.co_varnames[count + bool(code.co_flags & VARARGS)]]
        names += extra
        keywords += list(extra)
        values += extra.values()
    return names, values, keywords


def _is_source(file: str) -> bool:
    if file not in _sources:
        try:
            _sources[file] = os.path.samestat(os.stat(file), os.stat(job.FILE))
        except OSError:
            _sources[file] = False
    return _sources[file]


def _compiles() -> bool:
    torch = sys.modules.get("torch")
    return bool(hasattr(torch, "compiler") and torch.compiler.is_compiling())  # type: ignore[union-attr]


class TracedCall:
    """One call; traces its frame until it returns."""

    def __init__(self, frame: Any) -> None:
        self.names, self.values, self.keywords = _arguments(frame)
        self.owner = self.values[0] if job.OWNER and self.values else None
        self.packed = containers.take_apart(self.names, self.values, job.PARTS)
        self.members: dict[str, str] = {}
        if self.owner is not None:
            self._add_members(self.owner)
        self.described = [describe(value) for value in self.values]
        self.kind = kind(self.described)
        key = *self.described, *self.packed.items()
        known = _shapes.get(key)
        if known is None and len(_shapes) < MOST_SHAPES:
            known = _shapes[key] = [len(_shapes), 0, 0]
        self.shape = known or [-1, 0, SAMPLES]
        self.is_sampled = self.shape[2] < SAMPLES and _samples[0] < MOST_SAMPLES
        if self.is_sampled:
            self.contents = [contents(value) if is_tensor(value) else None for value in self.values]
            self.before = [digest(value) if is_tensor(value) else None for value in self.values]
            self.integers = [integers(value) if not self.shape[2] and self.shape[0] < MOST_RECORDED
                             else None for value in self.values]
            self.copies = copies(self.values)
        self.grads = [index for index, value in enumerate(self.values)
                      if is_tensor(value) and value.requires_grad]
        self.has_failed = self.has_raised = False
        self.returned: Any = None
        self.written: list[int] = []
        self.is_benched = callers.record(frame, self)
        _inside[0] = True  # a call within this one is part of it

    def _add_members(self, owner: Any) -> None:
        """Add what an object's class was called with, and the weights of a torch module."""
        if owner in _made:
            names, values, keywords = _made[owner]
            for name, value in zip(names, values, strict=True):
                form = f"{name}=" if name in keywords else ""
                self._add(f"init_{name}", value, f"init:{form}")
        else:
            self._add("init", None, "unseen")
        torch = torch_module()
        if torch is None or not isinstance(owner, torch.nn.Module):
            return
        self._add("training", owner.training, "training")
        for name, value in (*owner.named_parameters(), *owner.named_buffers()):
            if is_tensor(value) and name in owner.state_dict():
                self._add(name.replace(".", "_"), value, f"weight:{name}")

    def _add(self, name: str, value: Any, what: str) -> None:
        while name in self.names:
            name += "_"
        self.names.append(name)
        self.values.append(value)
        self.members[name] = what

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        self.has_raised = self.has_raised or event == "exception"
        self.has_failed = event == "exception" or (self.has_failed and event == "return")
        if event == "return":
            _inside[0] = False
            if not (self.has_failed and argument is None):
                try:
                    self._end(argument)
                except Exception as error:
                    write("note", text=f"{type(error).__name__}: {error}"[:300])
            else:
                write("failed", names=self.names, args=self.described)
        return self

    def _end(self, returned: Any) -> None:
        self.written = [index for index, value in enumerate(self.values) if self.is_sampled
                        and self.before[index] is not None and digest(value) != self.before[index]]
        if self.has_raised and returned is None and not self.written:
            write("failed", names=self.names, args=self.described)  # a `with` caught the error
            return
        if not (self.is_benched and self.shape[1]):
            self.shape[1] += 1
        self.returned = returned
        if not self.is_sampled:
            return
        self.shape[2] += 1
        _samples[0] += 1
        results = returned if isinstance(returned, (tuple, list)) else [returned]
        write("call", slot=self.shape[0], names=self.names, keywords=self.keywords,
              members=self.members, packed=self.packed, grads=self.grads, args=self.described,
              contents=self.contents, written=self.written, integers=self.integers,
              single=not isinstance(returned, (tuple, list)),
              returned=[describe(value) for value in results],
              same=[next((index for index, value in enumerate(self.values)
                          if value is result or same_memory(value, result)), -1)
                    for result in results])

    def outputs(self) -> list[Any]:
        """Return the tensors that it wrote to or returned."""
        results = self.returned if isinstance(self.returned, (tuple, list)) else [self.returned]
        return [self.values[index] for index in self.written] + [
            result for result in results if is_tensor(result)]


def _finish() -> None:
    sys.settrace(None)
    for slot, calls, _ in _shapes.values():
        write("count", slot=slot, calls=calls)
    write("kernels", files=[os.path.abspath(file) for file in launched_files.files])
    callers.finish()
