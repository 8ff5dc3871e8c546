"""Runs a user's program once under the guard and watches how it calls one function.

The watching code is the package harness/call_trace/injected, copied into the program's PYTHONPATH.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from harness.call_trace import counts
from harness.formats import shell_command
from harness.formats.json_codec import convert
from harness.isolation import guard
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import Limits, ProcessOutcome

Scalar = int | float | str | bool | None
ValueKind = Literal["tensor", "number", "literal", "tuple", "dtype", "device", "packed", "other"]
INTERPRETER = Path(__file__).parents[1] / "child" / "interpreter"
FAULTHANDLER = "PYTHONFAULTHANDLER"
"""Makes a Python program print where it crashes."""
PROGRAM_LIMITS = Limits(wall_s=900.0, output_bytes=64 << 20)


@dataclass(frozen=True, kw_only=True)
class ObservedValue:
    """An argument or a returned value: a tensor's dtype, shape and strides, or a constant.

    `low` and `high` are the least and largest value of a tensor, `ascending` and `distinct` say
    whether integers never descend and never occur twice; `text` describes a value of kind
    "other".
    """

    kind: ValueKind
    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    value: Scalar | tuple[int | float | None, ...] = None
    text: str = ""
    low: float | None = None
    high: float | None = None
    ascending: bool = False
    distinct: bool = False

    @property
    def is_contiguous(self) -> bool:
        expected = 1
        for size, step in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and step != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True, kw_only=True)
class ObservedCall:
    """Calls of one shape: arguments by name in call order, how many there were, what they changed.

    `keywords` can be passed by name only. `written` are arguments that the function wrote to;
    `same` names for each returned value the argument that it is, "" for a new value. `single` is
    whether one value was returned instead of a tuple. `grads` are tensors that require a gradient.
    `members` are arguments that the caller does not pass, and where they come from: "init:" of the
    object's constructor ("init:NAME=" by name only), "unseen" if its creation was not seen,
    "training", "weight:NAME" of the module. `packed` are containers of tensors that the caller
    passes, as Python that makes each of arguments.
    """

    args: Mapping[str, ObservedValue]
    calls: int
    keywords: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    returned: tuple[ObservedValue, ...] = ()
    same: tuple[str, ...] = ()
    single: bool = True
    grads: tuple[str, ...] = ()
    members: Mapping[str, str] = field(default_factory=dict)
    packed: Mapping[str, str] = field(default_factory=dict)
    integers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The values of tensors of integers in the first of these calls, unless they are large."""

    @property
    def passed(self) -> tuple[str, ...]:
        """What the caller passes: arguments, and containers of them."""
        return passed([name for name in self.args if name not in self.members], self.packed)

    @property
    def outputs(self) -> tuple[str | int, ...]:
        """The written arguments, then each returned tensor: the argument that it is, or its place.
        """
        return (*self.written, *(self.same[place] or place for place, value in enumerate(
            self.returned) if value.kind == "tensor"))


def passed(names: Sequence[str], packed: Mapping[str, str]) -> tuple[str, ...]:
    """Return arguments in order, each container in place of its parts."""
    whole = {part: name for name, text in packed.items() for part in re.findall(r"\w+", text)}
    return tuple(dict.fromkeys(whole.get(name, name) for name in names))


@dataclass(frozen=True, kw_only=True)
class ObservedLocal:
    """A caller's variable: the argument or `output` that it is, or the output that it is `near`."""

    name: str
    value: ObservedValue
    argument: str = ""
    output: int = -1
    near: int = -1


@dataclass(frozen=True, kw_only=True)
class ObservedCaller:
    """A caller of the watched function, its variables at the end, and the line of its last call.

    `paths` are the folders from which its program imported modules.
    """

    file: str
    function: str
    first_line: int
    line: int
    call: ObservedCall
    locals: tuple[ObservedLocal, ...]
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WatchedProgram:
    """What a program showed of a function; `failed` are the arguments of calls that raised.

    `kernels` are the files of the Triton kernels that the calls launched. `python` says whether the
    program began a Python that watches.
    """

    outcome: ProcessOutcome
    calls: tuple[ObservedCall, ...] = ()
    callers: tuple[ObservedCaller, ...] = ()
    failed: tuple[Mapping[str, ObservedValue], ...] = ()
    notes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    python: bool = False


@dataclass(frozen=True, kw_only=True)
class WatchedFunction:
    """A function of a file: the name and the first lines of its definitions, decorators included.

    `owner` is the class of which it is a method, `parts` its names for the parts of arguments.
    """

    file: str
    name: str
    lines: tuple[int, ...]
    owner: str = ""
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)


def watch(command: Sequence[str], function: WatchedFunction, cwd: Path, *, interpret: bool,
          on_cpu: bool = False, env: Mapping[str, str] | None = None,
          lock: DeviceLock | None = None) -> WatchedProgram:
    """Run a program and return what it showed, however it ends.

    Variables before it, as in `PYTHONPATH=src python test.py`, also after `env`, are set for it.
    With `on_cpu`, it gets the CPU where it asks for CUDA, unless there is a GPU.
    """
    variables, command = shell_command.split_words(command)
    with tempfile.TemporaryDirectory(prefix="kopt-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        environment = counts.inject(
            folder, {FAULTHANDLER: "1", **os.environ, **(env or {}), **variables}, BEGIN="watch",
            FILE=function.file, FUNCTION=function.name, LINES=function.lines,
            INTERPRET=interpret, ON_CPU=on_cpu or interpret, OWNER=function.owner,
            PARTS={name: list(parts) for name, parts in function.parts.items()})
        for patch in INTERPRETER.glob("[a-z]*.py"):
            shutil.copy(patch, folder / counts.PACKAGE / patch.name)
        if interpret:
            environment["TRITON_INTERPRET"] = "1"
        outcome = guard.run(command, cwd=cwd, env=environment, limits=PROGRAM_LIMITS,
                            lock=lock, name="program")
        return _gather(folder, outcome)


@dataclass
class _Shape:
    """What the lines of one process say about one shape."""

    call: ObservedCall
    calls: int = 1
    samples: list[ObservedCall] = field(default_factory=list)


def _gather(folder: Path, outcome: ProcessOutcome) -> WatchedProgram:
    calls: list[ObservedCall] = []
    callers: list[ObservedCaller] = []
    failed: list[Mapping[str, ObservedValue]] = []
    notes: dict[str, None] = {}
    kernels: dict[str, None] = {}
    with suppress(OSError, UnicodeDecodeError):
        notes = dict.fromkeys((folder / "faults").read_text("ascii").splitlines()[:3])
    for path in sorted(folder.glob("*.watch")):
        shapes: dict[int, _Shape] = {}
        for line in counts.lines_of(path, dict[str, Any]):
            if line["type"] == "call":
                call = _call(line)
                shape = shapes.setdefault(line["slot"], _Shape(call))
                shape.samples.append(call)
            elif line["type"] == "count" and line["slot"] in shapes:
                shapes[line["slot"]].calls = max(1, line["calls"])
            elif line["type"] == "failed":
                failed.append(_values(line["names"], line["args"]))
            elif line["type"] == "note":
                notes[line["text"]] = None
            elif line["type"] == "kernels":
                kernels |= dict.fromkeys(convert(line["files"], list[str]))
            elif line["type"] == "frame" and line["slot"] in shapes:
                callers.append(_caller(line, shapes[line["slot"]].call))
        calls += [_merged(shape) for shape in shapes.values()]
    return WatchedProgram(outcome=outcome, calls=tuple(calls), callers=tuple(callers),
                          failed=tuple(failed), notes=tuple(notes), kernels=tuple(kernels),
                          python=(folder / "begun").exists())


def _call(line: dict[str, Any]) -> ObservedCall:
    names = line["names"]
    return ObservedCall(
        args=_values(names, line["args"], line["contents"]), calls=1,
        keywords=convert(line["keywords"], tuple[str, ...]),
        members=convert(line["members"], dict[str, str]),
        packed=convert(line["packed"], dict[str, str]),
        grads=tuple(names[index] for index in line["grads"]),
        integers={name: convert(values, tuple[int, ...]) for name, values in zip(
            names, line["integers"], strict=True) if values is not None},
        written=tuple(names[index] for index in line["written"]),
        returned=tuple(map(_value, line["returned"])), single=bool(line["single"]),
        same=tuple(names[index] if index >= 0 else "" for index in line["same"]))


def _values(names: Sequence[str], described: Sequence[Any],
            contents: Sequence[Any] = ()) -> dict[str, ObservedValue]:
    values = dict(zip(names, map(_value, described), strict=True))
    for name, facts in zip(names, contents, strict=False):
        if facts is not None:
            low, high, ascending, distinct = facts
            values[name] = replace(values[name], low=low, high=high, ascending=ascending,
                                   distinct=distinct)
    return values


def _value(described: Sequence[Any]) -> ObservedValue:
    kind, *rest = described
    fields: dict[str, Any] = {"kind": kind}
    if kind == "tensor":
        fields |= dict(zip(("dtype", "shape", "stride"), rest, strict=True))
    else:
        fields["text" if kind == "other" else "value"] = rest[0]
    return convert(fields, ObservedValue)


def _merged(shape: _Shape) -> ObservedCall:
    """Return a shape's call with the contents of all its samples."""
    first, *others = shape.samples
    args = dict(first.args)
    for sample in others:
        for name, value in sample.args.items():
            if value.low is not None and args[name].low is not None:
                args[name] = replace(
                    args[name], low=_bound(min, args[name].low, value.low),
                    high=_bound(max, args[name].high, value.high),
                    ascending=args[name].ascending and value.ascending,
                    distinct=args[name].distinct and value.distinct)
    written = dict.fromkeys(name for sample in shape.samples for name in sample.written)
    return replace(first, args=args, calls=shape.calls, written=tuple(written))


def _bound(choose: Callable[[float, float], float], left: float | None,
           right: float | None) -> float | None:
    return None if left is None or right is None else choose(left, right)


def _caller(line: dict[str, Any], call: ObservedCall) -> ObservedCaller:
    names = list(call.args)
    return ObservedCaller(
        file=str(line["file"]), function=str(line["function"]), first_line=int(line["first_line"]),
        line=int(line["line"]), call=call, paths=convert(line["paths"], tuple[str, ...]),
        locals=tuple(
            ObservedLocal(name=name, value=_value(described), output=output, near=near,
                          argument=names[argument] if argument >= 0 else "")
            for name, described, argument, output, near in line["locals"]))
