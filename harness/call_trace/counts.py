"""Counts how often the processes of a program call a function.

The counting code is the package harness/call_trace/injected, copied into the program's PYTHONPATH.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from harness.formats.json_codec import convert

T = TypeVar("T")
Cell = int | float | str | bool | tuple[int, ...] | None
"""What identifies a shape in one argument: an array's shape or a scalar; None for anything else."""

OURS = Path(__file__).parent / "injected"
PACKAGE = "kopt_calls"
UNREAD, OTHER = 0, 1
"""The slots of these two counts, as in harness/call_trace/injected/tally.py."""
MOST_LINES_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class CountedFunction:
    """The counted function: one of a file, or of a module by its dotted name.

    `args` are the arguments that identify a shape: the position in a call (-1: that of the
    parameter of this name) and the name. None means all parameters.
    """

    name: str
    file: str = ""
    module: str = ""
    args: tuple[tuple[int, str], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class CountLine:
    """One line of a counting process; `type` says which of the fields it has.

    loaded: the function was found, and `parameters` name the cells. shape: `cells`, and the slot in
    which their calls are counted. elsewhere: another file of the source's name was loaded.
    """

    type: Literal["loaded", "shape", "note", "elsewhere"]
    parameters: tuple[str, ...] = ()
    slot: int = 0
    cells: tuple[Cell, ...] = ()
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class CallCount:
    """Calls with the same cells; the cells by parameter name."""

    cells: Mapping[str, Cell]
    calls: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The counts of all processes of a program.

    `python` is whether any process was a Python that counts; `processes` is the number that loaded
    the function. `unread` calls had unreadable arguments. `other` calls came after a process had
    met too many different shapes.
    """

    seen: tuple[CallCount, ...] = ()
    python: bool = False
    processes: int = 0
    unread: int = 0
    other: int = 0
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        return sum(call.calls for call in self.seen) + self.unread + self.other


def prepare(folder: Path, function: CountedFunction,
            environment: Mapping[str, str]) -> dict[str, str]:
    """Put the counting code into an empty folder; return the environment that activates it."""
    return inject(folder, environment, BEGIN="hook", FILE=function.file, MODULE=function.module,
                  FUNCTION=function.name, ARGS=function.args)


def inject(folder: Path, environment: Mapping[str, str], **job: object) -> dict[str, str]:
    """Copy the injected package with its job; return the environment in which Python loads it."""
    shutil.copytree(OURS, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.move(folder / PACKAGE / "sitecustomize.py", folder / "sitecustomize.py")
    (folder / PACKAGE / "job.py").write_text("".join(
        f"{name} = {value!a}\n" for name, value in {**job, "FOLDER": str(folder)}.items()),
        encoding="ascii")
    paths = filter(None, (str(folder), environment.get("PYTHONPATH")))
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def gather(folder: Path) -> Counts:
    """Return the counts so far."""
    seen: list[CallCount] = []
    notes: dict[str, None] = {}
    with suppress(OSError, UnicodeDecodeError):
        faults = (folder / "faults").read_text("ascii").splitlines()[:3]
        notes = dict.fromkeys(f"a process could not count: {line}" for line in faults)
    elsewhere: dict[str, None] = {}
    processes = unread = other = 0
    for path in sorted(folder.glob("*.lines")):
        numbers = _numbers(path.with_suffix(".calls"))
        unread, other = unread + numbers.get(UNREAD, 0), other + numbers.get(OTHER, 0)
        parameters: tuple[str, ...] | None = None
        for line in lines_of(path, CountLine):
            if line.type == "loaded":
                processes += parameters is None
                parameters = line.parameters
            elif line.type == "shape" and parameters is not None and numbers.get(line.slot):
                cells = dict(zip(parameters, line.cells, strict=False))
                seen.append(CallCount(cells=cells, calls=numbers[line.slot]))
            elif line.type == "note":
                notes[line.text] = None
            elif line.type == "elsewhere":
                elsewhere[line.text] = None
    return Counts(seen=tuple(seen), python=(folder / "begun").exists(), processes=processes,
                  unread=unread, other=other, notes=tuple(notes), elsewhere=tuple(elsewhere))


def lines_of(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the complete lines of a process as a type; its last one may be cut off."""
    with path.open("rb") as file:
        for text in file.read(MOST_LINES_BYTES).splitlines():
            with suppress(ValueError, SyntaxError):
                yield convert(ast.literal_eval(text.decode("ascii")), kind)


def _numbers(path: Path) -> dict[int, int]:
    data = path.read_bytes() if path.exists() else b""
    values = memoryview(data[:len(data) // 8 * 8]).cast("Q")
    return {slot: number for slot, number in enumerate(values) if number}
