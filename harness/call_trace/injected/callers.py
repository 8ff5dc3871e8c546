"""Records the variables of a watched call's callers, when the callers return.

Nothing of a caller is kept after that. Callers that are still running are recorded when the program
ends.
"""

from __future__ import annotations

import os
import sys

from . import containers, job
from .observed import close, describe, equal, is_module, is_tensor, same_memory
from .tally import write_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST, OF_KIND = 32, 4
"""Most callers that are recorded: in all, and for each kind of call."""
MOST_ABOVE = 8
MOST_LOCALS = 200
BENCHES = ("do_bench", "do_bench_cudagraph")
"""Functions that repeat a call to time it: for the weights that is one call."""

_running: dict[int, tuple[Any, int, Any]] = {}
"""By frame: the frame, the line of its latest call, and that call, a TracedCall of watch.py."""
_kinds: list[tuple[Any, ...]] = []
"""The kind of call of each caller so far."""


def record(frame: Any, call: Any) -> bool:
    """Watch the callers' frames until they return; return whether a benchmark repeats the call."""
    is_benched = False
    for _ in range(MOST_ABOVE):
        frame = frame.f_back
        if frame is None:
            break
        is_benched = is_benched or frame.f_code.co_name in BENCHES
        file = frame.f_code.co_filename
        if not call.is_sampled or is_benched or file.startswith("<") or any(
                part in file for part in ("site-packages", "/lib/python", "dist-packages")):
            continue
        if id(frame) not in _running:
            if len(_kinds) >= MOST or _kinds.count(call.kind) >= OF_KIND:
                continue
            _kinds.append(call.kind)
            if frame.f_trace is None:
                frame.f_trace, frame.f_trace_lines = _trace_return, False
        _running[id(frame)] = frame, frame.f_lineno, call
    return is_benched


def _trace_return(frame: Any, event: str, argument: Any) -> Any:
    """Write a caller's variables when it returns, so that its tensors are not kept."""
    if event == "return" and (kept := _running.pop(id(frame), None)) is not None:
        _write_frame(*kept)
    return _trace_return


def finish() -> None:
    """Record the callers that are still running."""
    for kept in list(_running.values()):
        _write_frame(*kept)


def _write_frame(frame: Any, line: int, call: Any) -> None:
    try:
        write("frame", file=os.path.abspath(frame.f_code.co_filename), line=line,
              function=frame.f_code.co_name, first_line=frame.f_code.co_firstlineno,
              slot=call.shape[0], locals=list(_locals(frame, call)),
              paths=[os.path.abspath(path) for path in sys.path])
    except Exception as error:
        write("note", text=f"{type(error).__name__}: {error}"[:300])


def _locals(frame: Any, call: Any) -> Any:
    """Yield a caller's variables: name, description, and the argument or output that each has."""
    outputs = call.outputs()

    def argument_of(value: Any) -> int:
        return next((index for index, passed in enumerate(call.values)
                     if is_tensor(passed) and (passed is value or same_memory(passed, value)
                                               or equal(value, call.copies[index]))), -1)

    def argument_name(value: Any) -> str:
        index = argument_of(value)
        filled = (each for each in call.written if close(value, call.values[each]))
        index = index if index >= 0 else next(filled, -1)  # a buffer that the reference fills
        return call.names[index] if index >= 0 else ""

    for name, value in _variables(frame):
        described = describe(value)
        if value is not None and value is call.owner:
            yield name, described, 0, -1, -1
        elif described[0] == "other" and is_module(value):
            for member, tensor in list(value.named_parameters())[:MOST_LOCALS]:
                if (index := argument_of(tensor)) >= 0:
                    yield f"{name}.{member}", describe(tensor), index, -1, -1
        if containers.has_parts(value) and (
                text := containers.of_arguments(value, argument_name)):
            yield name, ("packed", text), -1, -1, -1
        if name.startswith("__") or described[0] == "other":
            continue
        argument = output = near = -1
        if is_tensor(value):
            argument = argument_of(value)
            for index, result in enumerate(outputs):
                if result is value or same_memory(result, value):
                    output = index
                elif close(value, result):
                    near = index
        yield name, described, argument, output, near


def _variables(frame: Any) -> Any:
    """Yield a frame's variables; those of its `self`, such as a test's `self.device`, follow."""
    yield from list(frame.f_locals.items())[:MOST_LOCALS]
    owner = frame.f_locals.get("self")
    if owner is None or is_module(owner):
        return
    members: dict[str, Any] = {}
    for part in (*reversed(type(owner).__mro__), owner):
        members.update(getattr(part, "__dict__", {}))
    yield from [(f"self.{name}", value) for name, value in members.items()
                if not name.startswith("_")][:MOST_LOCALS]


def write(kind: str, **fields: Any) -> None:
    """Write a line for the process that drafts the task."""
    write_line(os.path.join(job.FOLDER, f"{os.getpid()}.watch"), {"type": kind, **fields})
