"""Turn the observed values of one argument into an argument of a task: role, bounds, constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from engine.discovery.watched.size_names import SizeNames
from harness.call_trace.watched_calls import ObservedCall, ObservedValue
from harness.errors import InputError
from harness.tasks.target import DTYPE_BYTES, Arg, Role, Structure

OUTPUTS = frozenset(("out", "output", "outputs", "o", "y", "dst", "result", "res", "c"))
WORDS: dict[Structure | None, str] = {
    None: "below a size", "ascending": "ascending", "increasing": "ascending without repetitions",
    "distinct": "without repetitions", "offsets": "ascending from 0 to a size"}
"""How remarks describe each structure."""


def tensor(name: str, values: Sequence[ObservedValue], sizes: SizeNames, written: bool,
           remarks: list[str]) -> Arg:
    """Return a tensor argument without bounds: these may depend on the sizes of all tensors."""
    first = values[0]
    if first.dtype not in DTYPE_BYTES:
        raise InputError(f"argument {name!r} has the dtype {first.dtype}, which kopt cannot "
                         "generate", fix=f"supported are {', '.join(DTYPE_BYTES)}")
    role: Role | None = None
    if written:
        blank = all(value.low is None or value.low == value.high for value in values)
        role = "output" if blank or name.lower().strip("_") in OUTPUTS or \
            name.lower().startswith("out") else "inout"
    if view := next((value for value in values if not value.is_contiguous), None):
        remarks.append(f"{name} was a view with strides {list(view.stride)} at times: kopt calls "
                       "with contiguous tensors; `strided: true` in the task checks views too")
    return Arg(name=name, dtype=first.dtype, role=role,
               shape=sizes.shape(name, [value.shape for value in values]))


def with_bounds(arg: Arg, calls: Sequence[ObservedCall], sizes: SizeNames,
                remarks: list[str]) -> Arg:
    """Return a tensor with bounds of its values, and if they are integers with their structure.

    Outputs, bools, floats around 0 and floats of one value get no bounds; those of other floats are
    rounded outwards.
    """
    values = [call.args[arg.name] for call in calls]
    known = [(value.low, value.high) for value in values
             if value.low is not None and value.high is not None]
    if not known or arg.kind == "output" or arg.dtype == "bool":
        return arg
    if "float" not in arg.dtype:
        return _with_structure(arg, calls, sizes, remarks) if len(known) == len(calls) else \
            replace(arg, low=min(low for low, _ in known), high=min(high for _, high in known) + 1)
    low, high = min(each for each, _ in known), max(each for _, each in known)
    if low == high or low < 0 < high:
        return arg
    step = 10.0 ** math.floor(math.log10(max(abs(low), abs(high)) or 1.0))
    bottom, top = math.floor(low / step) * step, math.ceil(high / step) * step
    remarks.append(f"{arg.name} was always from {low:.3g} to {high:.3g}: kopt draws from "
                   f"{bottom:.3g} to {top:.3g}")
    return replace(arg, low=bottom, high=top)


def _with_structure(arg: Arg, calls: Sequence[ObservedCall], sizes: SizeNames,
                    remarks: list[str]) -> Arg:
    """Return a tensor of integers with the structure that it had in every call."""
    values = [call.args[arg.name] for call in calls]
    low = min(int(value.low or 0) for value in values)
    highs = tuple(int(value.high or 0) for value in values)
    counts = [math.prod(value.shape) for value in values]
    ascending = all(value.ascending for value in values)
    distinct = all(value.distinct for value in values)
    ends = all(high in _dimensions(call, arg.name) for high, call in zip(highs, calls, strict=True))
    structure: Structure | None = None
    if ascending and ends and low == 0 and len(values[0].shape) == 1:
        structure, high = "offsets", sizes.matching(highs)
    elif distinct and all(high - low + 1 == count for high, count in zip(
            highs, counts, strict=True)):
        structure = "increasing" if ascending else "distinct"
        high = sizes.matching(tuple(counts))
        high = high if low == 0 else None
    else:
        structure = ("increasing" if ascending else "distinct") if distinct else \
            "ascending" if ascending else None
        high = _limit(highs, counts if distinct else [0] * len(calls), sizes)
        if high is None and (not distinct or len(set(highs)) == 1):
            high = min(highs) + 1
    if high is None:
        structure, high = None, max(low, min(highs)) + 1
    elif structure == "offsets":
        high = high + 1 if isinstance(high, int) else f"{high} + 1"
    if structure or isinstance(high, str):
        last = high if isinstance(high, str) else str(high)
        remarks.append(f"{arg.name} was {WORDS[structure]} in the program: kopt draws such values "
                       f"from {low} to below {last}")
    return replace(arg, low=low, high=high, structure=structure)


def _dimensions(call: ObservedCall, excluded: str) -> set[int]:
    return {size for name, value in call.args.items() if name != excluded for size in value.shape}


def _limit(highs: Sequence[int], least: Sequence[int], sizes: SizeNames) -> int | str | None:
    """Return the smallest varying size above the values in every call.

    None if the highest value is the same in every call, or if there is no such size.
    """
    if len(set(highs)) == 1:
        return None
    fitting = [values for values in {sizes.symbols[name] for name in sizes.symbols}
               if all(high < size and count <= size for high, size, count in zip(
                 highs, values, least, strict=True)) and len(set(values)) > 1]
    return sizes.matching(min(fitting, key=sum)) if fitting else None


def constant(name: str, values: Sequence[ObservedValue], sizes: SizeNames) -> Arg:
    """Return an argument that is no tensor: a number, a tuple of numbers or a literal."""
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
