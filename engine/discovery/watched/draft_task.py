"""Turn observed calls of a function into a task: arguments, roles, ranges, config classes, weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.discovery.watched.entry_source import EntrySource
from engine.discovery.watched.size_names import SizeNames
from harness.call_trace.watched_calls import ObservedCall, ObservedValue
from harness.errors import InputError
from harness.formats.quantities import counted, listed
from harness.tasks.target import DTYPE_BYTES, MAX_ELEMENTS, Arg, ConfigClass, Role

MOST_CLASSES = 6
LEAST_CLASSES = 3
"""Most called shapes that are always classes; the others show small, large and odd sizes."""
OUTPUTS = frozenset(("out", "output", "outputs", "o", "y", "dst", "result", "res", "c"))
INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, kw_only=True)
class CallGroup:
    """Calls with the same dtypes and constants: what one task can describe."""

    calls: tuple[ObservedCall, ...]

    @property
    def count(self) -> int:
        return sum(call.calls for call in self.calls)

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value.dtype for value in self.calls[0].args.values()
                                   if value.kind == "tensor"))

    def describe(self) -> str:
        """Return in a few words what its calls share."""
        constants = [f"{name}={value.value}" for name, value in self.calls[0].args.items()
                     if value.kind == "literal" and value.value is not None]
        return f"{counted(self.count, 'call')} with " + ", ".join(
            [*self.dtypes, *constants][:6])


@dataclass(frozen=True, kw_only=True)
class TaskDraft:
    """The parts of a task that calls show, and the reason of each inferred value.

    `keywords` are arguments that can be passed by name only. `kept` are the positions of the
    returned values that are tensors; `returned_shapes` are their shapes.
    """

    args: tuple[Arg, ...]
    classes: tuple[ConfigClass, ...]
    returns: bool
    return_dtypes: tuple[str, ...]
    returned_shapes: tuple[tuple[int | str, ...] | None, ...]
    kept: tuple[int, ...]
    returned: int
    single: bool
    keywords: tuple[str, ...]
    reasons: tuple[tuple[str, str, str], ...]
    remarks: tuple[str, ...] = ()


def visible(calls: Sequence[ObservedCall], entry: EntrySource) -> list[ObservedCall]:
    """Return calls without what their caller does not pass: ctx or self, and defaults at the end.
    """
    dropped: set[str] = set()
    for name in reversed(list(calls[0].args)):
        values = [call.args[name] for call in calls if name in call.args]
        if name not in entry.defaults or any(
                value.kind in ("number", "tensor") or (
                    entry.defaults[name] is not ... and value.value != entry.defaults[name])
                for value in values):
            break
        dropped.add(name)
    return [replace(call, args={name: value for name, value in call.args.items()
                                if name not in {*list(call.args)[:entry.hidden], *dropped}})
            for call in calls]


def groups(calls: Sequence[ObservedCall]) -> list[CallGroup]:
    """Return the calls by dtypes and constants, the most called first."""
    found: dict[tuple[Any, ...], list[ObservedCall]] = {}
    for call in calls:
        key = tuple((name, *_key(value)) for name, value in call.args.items())
        found.setdefault((key, call.single, len(call.returned)), []).append(call)
    return sorted((CallGroup(calls=tuple(calls)) for calls in found.values()),
                  key=lambda group: -group.count)


def choose(found: Sequence[CallGroup], *, interpret: bool) -> CallGroup:
    """Return the most called group; Triton's interpreter computes bfloat16 wrongly."""
    usable = [group for group in found if not (interpret and "bfloat16" in group.dtypes)]
    return (usable or list(found))[0]


def _key(value: ObservedValue) -> tuple[Any, ...]:
    if value.kind == "tensor":
        return "tensor", value.dtype, len(value.shape)
    if value.kind == "number":
        return ("number", "int") if isinstance(value.value, int) else ("number", value.value)
    if value.kind == "tuple" and isinstance(value.value, tuple):
        whole = all(isinstance(entry, int) for entry in value.value)
        return ("tuple", len(value.value)) if whole else ("tuple", value.value)
    return value.kind, value.value, value.text


def draft(group: CallGroup, entry: EntrySource, line: str) -> TaskDraft:
    """Return the task that a group of calls shows. Raises InputError naming an unknown argument.

    `line` is the place of the function, for messages.
    """
    calls = _distinct(group.calls)
    sizes = SizeNames(entry.sizes)
    remarks: list[str] = []
    reasons: list[tuple[str, str, str]] = []
    written = {name for call in calls for name in call.written}
    args: dict[str, Arg] = {}
    names = list(calls[0].args)
    for name in sorted(names, key=lambda name: (_order(calls[0].args[name]), names.index(name))):
        values = [call.args[name] for call in calls]
        if values[0].kind == "other":
            raise InputError(f"argument {name!r} is {values[0].text}, which a task cannot describe",
                             where=line, fix="name a function that takes tensors and constants, or "
                             "write an adapter: adapter: FILE:FUNCTION in the task")
        args[name] = _tensor(name, values, sizes, name in written, remarks) \
            if values[0].kind == "tensor" else _constant(name, values, sizes)
    ordered = tuple(args[name] for name in names)
    kept = tuple(index for index, value in enumerate(calls[0].returned)
                 if value.kind == "tensor" and not calls[0].same[index])
    outputs = [arg.name for arg in ordered if arg.kind in ("output", "inout")]
    if not kept and not outputs:
        what = ", ".join(value.text or value.kind for value in calls[0].returned) or "nothing"
        raise InputError(f"the function wrote to no argument and returned {what}", where=line,
                         fix="name a function that returns or fills tensors")
    for name, names_of in (("inputs", [arg.name for arg in ordered if arg.kind == "input"]),
                           ("outputs", outputs)):
        if names_of:
            reasons.append((name, ", ".join(names_of), "overwritten in the program"
                            if name == "outputs" else "read in the program"))
    classes = _classes(calls, sizes, reasons)
    result = TaskDraft(
        args=ordered, classes=classes, returns=bool(kept), kept=kept,
        return_dtypes=tuple(calls[0].returned[index].dtype for index in kept),
        returned_shapes=tuple(_returned_shape(calls, index, sizes) for index in kept),
        returned=len(calls[0].returned), single=calls[0].single, keywords=calls[0].keywords,
        reasons=tuple(reasons), remarks=tuple(remarks))
    return result


def _order(value: ObservedValue) -> int:
    return ("tensor", "tuple", "number").index(value.kind) \
        if value.kind in ("tensor", "tuple", "number") else 3


def _distinct(calls: Sequence[ObservedCall]) -> list[ObservedCall]:
    """Return the calls with those of the same sizes joined: they differ in strides only."""
    found: dict[tuple[Any, ...], ObservedCall] = {}
    for call in calls:
        key = tuple((value.shape, value.value) for value in call.args.values())
        old = found.get(key)
        found[key] = call if old is None else replace(old, calls=old.calls + call.calls)
    return list(found.values())


def _tensor(name: str, values: Sequence[ObservedValue], sizes: SizeNames, written: bool,
            remarks: list[str]) -> Arg:
    first = values[0]
    if first.dtype not in DTYPE_BYTES:
        raise InputError(f"argument {name!r} has the dtype {first.dtype}, which kopt does not "
                         "draw", fix=f"supported are {', '.join(DTYPE_BYTES)}")
    role: Role | None = None
    if written:
        blank = all(value.low is None or value.low == value.high for value in values)
        role = "output" if blank or name.lower().strip("_") in OUTPUTS or \
            name.lower().startswith("out") else "inout"
    if any(not value.is_contiguous for value in values):
        remarks.append(f"{name} was a view with strides {list(first.stride)} at times: kopt calls "
                       "with contiguous tensors; `strided: true` in the task checks views too")
    low, high = (None, None) if role == "output" else _range(name, values, remarks)
    return Arg(name=name, dtype=first.dtype, role=role, low=low, high=high,
               shape=sizes.shape(name, [value.shape for value in values]))


def _range(name: str, values: Sequence[ObservedValue],
           remarks: list[str]) -> tuple[float | None, float | None]:
    """Return the bounds of a tensor's values, (None, None) for all values."""
    known = [(value.low, value.high) for value in values
             if value.low is not None and value.high is not None]
    if not known or values[0].dtype == "bool":
        return None, None
    low, high = min(each for each, _ in known), max(each for _, each in known)
    if "float" not in values[0].dtype:
        if any(value.ascending or value.distinct for value in values):
            order = "ascending" if all(value.ascending for value in values) else "distinct"
            remarks.append(f"{name} was {order} in the program, and is drawn at random here: check "
                           "that the function accepts that")
        return low, min(each for _, each in known if each >= low) + 1
    if low == high or low < 0 < high:
        return None, None
    step = 10.0 ** math.floor(math.log10(max(abs(low), abs(high)) or 1.0))
    bottom, top = math.floor(low / step) * step, math.ceil(high / step) * step
    remarks.append(f"{name} was always from {low:.3g} to {high:.3g}: kopt draws from {bottom:.3g} "
                   f"to {top:.3g}")
    return bottom, top


def _constant(name: str, values: Sequence[ObservedValue], sizes: SizeNames) -> Arg:
    first = values[0]
    if first.kind == "number":
        if isinstance(first.value, int) and not isinstance(first.value, bool):
            return Arg(name=name, dtype="int64", value=sizes.number(
                name, tuple(value.value for value in values
                            if isinstance(value.value, int))))
        return Arg(name=name, dtype="float64", value=first.value
                   if isinstance(first.value, float) else None)
    if first.kind == "tuple" and isinstance(first.value, tuple):
        entries = [[value.value[index] for value in values if isinstance(value.value, tuple)]
                   for index in range(len(first.value))]
        return Arg(name=name, dtype="tuple", literal=tuple(
            sizes.number(f"{name}_{index}", tuple(each for each in entry if isinstance(each, int)))
            if all(isinstance(each, int) for each in entry) else entry[0] or 0.0
            for index, entry in enumerate(entries)))
    if first.kind in ("dtype", "device"):
        return Arg(name=name, dtype=first.kind, literal=str(first.value))
    if isinstance(first.value, bool | str):
        return Arg(name=name, dtype="bool" if isinstance(first.value, bool) else "str",
                   literal=first.value)
    return Arg(name=name, dtype="none")


def _returned_shape(calls: Sequence[ObservedCall], index: int,
                    sizes: SizeNames) -> tuple[int | str, ...] | None:
    """Return the shape of a returned tensor in the symbols, None if they do not show it."""
    shapes = [call.returned[index].shape for call in calls if index < len(call.returned)]
    if len({len(shape) for shape in shapes}) != 1 or len(shapes) < len(calls):
        return None
    found = [sizes.matching(tuple(shape[axis] for shape in shapes))
             for axis in range(len(shapes[0]))]
    return None if None in found else tuple(each for each in found if each is not None)


def _classes(calls: Sequence[ObservedCall], sizes: SizeNames,
             reasons: list[tuple[str, str, str]]) -> tuple[ConfigClass, ...]:
    """Return config classes of representative shapes, with weights from the calls."""
    made: dict[str, ConfigClass] = {}
    for index, call in enumerate(calls):
        shape = sizes.values(index)
        if sum(math.prod(value.shape) for value in call.args.values()) > MAX_ELEMENTS:
            continue
        name = ("x".join(map(str, shape.values())) or "only")[:64]
        old = made.get(name)
        weight = call.calls + (old.weight if old else 0.0)
        made[name] = ConfigClass(name=name, shape=shape, weight=weight)
    every = sorted(made.values(), key=lambda entry: -entry.weight)
    chosen = list(dict.fromkeys(entry.name for entry in _representatives(every)))
    classes = [entry for entry in every if entry.name in chosen]
    least = min(entry.weight for entry in classes)
    reasons.append(("classes", listed([entry.name for entry in classes], MOST_CLASSES),
                    f"{counted(len(every), 'shape')} called"
                    + (f", {len(every) - len(classes)} left out" if len(every) > len(classes)
                       else "")))
    if any(entry.weight != least for entry in classes):
        reasons.append(("weights", ", ".join(f"{entry.weight / least:g}" for entry in classes),
                        "how often each shape was called"))
    return tuple(replace(entry, weight=round(entry.weight / least, 2)) for entry in classes)


def _representatives(every: Sequence[ConfigClass]) -> Iterator[ConfigClass]:
    """Yield the most called classes, the smallest, the largest, an odd one, then others."""
    if len(every) <= MOST_CLASSES:
        yield from every
        return
    def size(entry: ConfigClass) -> int:
        return math.prod(entry.shape.values())

    yield from every[:LEAST_CLASSES]
    yield min(every, key=size)
    yield max(every, key=size)
    yield from [entry for entry in every if any(
        value % 16 and value > 16 for value in entry.shape.values())][:1]


def facts(draft: TaskDraft) -> Mapping[str, Any]:
    """Return the draft's parts for a Target."""
    return {"args": draft.args, "classes": draft.classes, "returns": draft.returns,
            "return_dtypes": draft.return_dtypes}
