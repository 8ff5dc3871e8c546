"""Say why a program showed no call of a function, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

from harness.call_trace.watched_calls import PROGRAM_LIMITS, WatchedProgram
from harness.errors import KoptError, Refused
from harness.formats.text import plain

_FRAME = re.compile(r'File "([^"]+)", line (\d+)|^(\S+\.py):(\d+): ', re.MULTILINE)
_ERROR = re.compile(r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*)$",
                    re.MULTILINE)
_NEEDS_GPU = re.compile(r"compiled with CUDA|active drivers|NVIDIA driver|No CUDA GPUs|"
                        r"[Ii]nterpreter|No HIP GPUs|get_device_prop|CUDA driver")
QUOTES = "\\'\""
_NESTED = re.compile(r"\b(?=(\w+(?:Error|Exception))\(\W*([^()]*))")
_MODULE = re.compile(r"No module named '?([\w.]+)'?")


def fault(observed: WatchedProgram, title: str, project: Path, *, on_gpu: bool) -> KoptError:
    """Return the error for a program that did not call the function."""
    failure = failure_of(observed, project)
    if not on_gpu and _NEEDS_GPU.search(failure):
        return Refused(f"the program failed: {failure}", where=title, fix=(
            "this machine has no GPU, and Triton's interpreter does not run everything: use a "
            "machine with one"))
    if module := _MODULE.search(failure):
        return Refused(f"the program failed: {failure}", where=title, fix=(
            f"install {module[1].partition('.')[0]} for the program's Python, or start it where "
            "that can be imported"))
    if observed.failed:
        return Refused(f"each of {len(observed.failed)} calls raised an error"
                       + (f": {failure}" if failure else ""), where=title,
                       fix="give a program that runs without errors")
    if failure:
        return Refused(f"the program failed before it called the function: {failure}", where=title,
                       fix="give a program that runs without errors, such as a test")
    if not observed.python:
        return Refused("the program started no Python that can be watched", where=title,
                       fix="Python started with -I, -E or -S, or without PYTHONPATH, cannot be "
                       "watched")
    notes = f" ({observed.notes[0]})" if observed.notes else ""
    return Refused(f"the program never called the function{notes}", where=title, fix=(
        "give a program that calls it in its main thread, outside torch.compile and without a "
        "coverage tool"))


def failure_of(observed: WatchedProgram, project: Path) -> str:
    """Return the error that ended a program, with its line in the project; "" if none did."""
    if observed.outcome.ok:
        return ""
    if observed.outcome.ended != "exit":
        return observed.outcome.describe(PROGRAM_LIMITS)
    text = "\n".join(stream.decode(errors="replace")
                     for stream in (observed.outcome.stdout, observed.outcome.stderr))
    errors = _ERROR.findall(text)
    places = [(match[1] or match[3], match[2] or match[4]) for match in _FRAME.finditer(text)]
    own = [f"{Path(file).name}:{line}" for file, line in places
           if "site-packages" not in file and "/lib/python" not in file]
    if not errors:
        return observed.outcome.describe(PROGRAM_LIMITS)
    return plain(_innermost(errors[-1]), 200) + (f" ({own[-1]})" if own else "")


def _innermost(error: str) -> str:
    """Return the error that Triton's interpreter wrapped in others, once for each call."""
    nested = _NESTED.findall(error) if "InterpreterError" in error else []
    kind, text = nested[-1] if nested else ("", "")
    return f"in Triton's interpreter, {kind}: {text.rstrip(QUOTES)}" if nested else error
