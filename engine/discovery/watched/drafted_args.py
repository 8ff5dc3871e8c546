"""Turn the observed values of one argument into an argument of a task: role, bounds, constant."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.discovery.watched.size_names import SizeNames
from harness.call_trace.watched_calls import ObservedValue
from harness.errors import InputError
from harness.tasks.target import DTYPE_BYTES, Arg, Role

OUTPUTS = frozenset(("out", "output", "outputs", "o", "y", "dst", "result", "res", "c"))


def tensor(name: str, values: Sequence[ObservedValue], sizes: SizeNames, written: bool,
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


def constant(name: str, values: Sequence[ObservedValue], sizes: SizeNames) -> Arg:
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
