"""The distributions of input values that a kernel is checked on.

normal: standard normal. The others catch kernels that exploit it. wide: four times as large.
shifted: off zero by amounts that depend on the bits of an element's place, so that no part has the
mean of the whole. heavy: Student's t with three degrees of freedom. tied: five
distinct values. constant: one value. structured: zero, sparse, sorted and one-hot rows between
dense ones. Arguments with bounds stay within them. Untimed checks use more: small, a thousandth as
large; large, a hundred times as large; far, a thousand off zero; extreme, with some values near a
million and infinite ones; nan, with some that are no number; low and high, one value far below or
above zero in all but a few places, which a sample of the elements misses; unbounded, integers over
the range of their dtype.
"""

from __future__ import annotations

import json
import math
from typing import Any

from .arrays import int_bounds

FARTHEST = 100.0
ROW_KINDS = 6
STORED = {"I8": "int8", "U8": "uint8", "BOOL": "bool", "I16": "int16", "I32": "int32",
          "I64": "int64"}
"""The dtypes that are read from safetensors files."""
REPLACED = 2, 3, 4, 5
OF_ROWS = "probabilities", "log_probabilities"
FARTHEST_SCORE = 8.0
"""Bound of the logarithms of probabilities, up to a constant of their row."""
SPIKED = "extreme", "nan"
HUGE = 1e6
BACKGROUND = {"low": -16.0, "high": 16.0}
"""Values at which a bounded or a positive part of a sum vanishes, such as that of a hinge loss."""
STEP, FEW_PLACES = 0.8, 1024
"""The most that a bit of a place adds, and the number of places that share their higher bits."""


def whole_range(dtype: str) -> tuple[int, int]:
    """Return the least integer of a dtype and the number after its largest one, within 53 bits."""
    bits = min(53, int(dtype.lstrip("uint")))  # what float64 holds
    return (0, 1 << bits) if dtype.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)


def draw(arrays: Any, tensor: dict[str, Any], seed: int, kind: str) -> Any:
    """Return one argument's values, drawn from a seed; integers stay below their upper bound.

    An argument with `data` is read from its file.
    """
    if tensor.get("data"):
        return arrays.from_bytes(stored(tensor), tensor["dtype"]).reshape(tensor["shape"])
    generator, shape = arrays.generator(seed), tensor["shape"]
    low, high = tensor["low"], tensor["high"]
    structure = tensor.get("structure")
    if structure in OF_ROWS:
        return _probabilities(arrays, shape, generator, kind, is_log=structure != OF_ROWS[0])
    if structure == "two_valued":
        return two_values(arrays, tensor, _bounded(arrays, shape, generator, kind) > 0.6)
    if structure:
        return _ordered(arrays, tensor, structure, generator, kind)
    if "float" not in tensor["dtype"]:
        first, end = int_bounds(low, high) if kind != "unbounded" or tensor["dtype"] == "bool" \
            or low is not None or high is not None else whole_range(tensor["dtype"])
        values = arrays.floor(first + _bounded(arrays, shape, generator, kind) * (end - first))
        return arrays.clip(values, first, max(first, end - 1))
    if low is not None or high is not None:
        start, stop = 0.0 if low is None else low, 1.0 if high is None else high
        values = start + _bounded(arrays, shape, generator, kind) * (stop - start)
        return arrays.clip(values, start, stop)
    largest = min(math.inf if kind in ("large", "far") else FARTHEST,
                  arrays.largest(tensor["dtype"]))
    values = arrays.clip(_free(arrays, shape, generator, kind), -largest, largest)
    if kind in BACKGROUND and "few" in tensor:
        differs = arrays.uniform(shape, generator) < tensor["few"]
        return arrays.where(differs, values, BACKGROUND[kind])
    return _spiked(arrays, values, generator, kind, arrays.largest(tensor["dtype"])) \
        if kind in SPIKED and "float8" not in tensor["dtype"] else values


def stored(tensor: dict[str, Any]) -> bytes:
    """Return the bytes of a tensor in a safetensors file. Raises ValueError if they do not fit."""
    path, _, key = tensor["data"].rpartition(":")
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        entry, start = header[key], file.tell()
        file.seek(start + entry["data_offsets"][0])
        raw = file.read(entry["data_offsets"][1] - entry["data_offsets"][0])
    if entry["shape"] != tensor["shape"] or STORED.get(entry["dtype"]) != tensor["dtype"]:
        raise ValueError(f"{tensor['name']} is {entry['dtype']} {entry['shape']} in {path}, "
                         f"the task says {tensor['dtype']} {tensor['shape']}")
    return raw


def two_values(arrays: Any, tensor: dict[str, Any], is_high: Any) -> Any:
    """Return a tensor's highest value where `is_high`, elsewhere its lowest one."""
    high = tensor["high"] if "float" in tensor["dtype"] else int(tensor["high"]) - 1
    return arrays.where(is_high, high, tensor["low"])


def _ordered(arrays: Any, tensor: dict[str, Any], structure: str, generator: Any,
             kind: str) -> Any:
    """Return integers with a structure, see Structure in harness/tasks/target.py."""
    first, end, count = int(tensor["low"]), int(tensor["high"]), math.prod(tensor["shape"])
    if structure == "ascending" or end - first < count:
        share = arrays.sorted_rows(_bounded(arrays, [1, count], generator, kind))
        values = arrays.clip(arrays.floor(first + share * (end - first)), first, end - 1)
        values = values.reshape(-1)
    else:
        values = arrays.shuffled(end - first, generator)[:count] + first
        if structure != "distinct":
            values = arrays.sorted_rows(values.reshape(1, count)).reshape(-1)
    if structure == "offsets":
        values[0], values[-1] = first, end - 1
    return values.reshape(tensor["shape"])


def _probabilities(arrays: Any, shape: list[int], generator: Any, kind: str, *,
                   is_log: bool) -> Any:
    """Return rows of positive values that add up to 1, or their logarithms."""
    scores = arrays.clip(_free(arrays, shape, generator, kind), -FARTHEST_SCORE, FARTHEST_SCORE)
    shares = arrays.exp(scores)
    total = shares.sum(-1)[..., None]
    return scores - arrays.log(total) if is_log else shares / total


def _free(arrays: Any, shape: list[int], generator: Any, kind: str) -> Any:
    if kind == "tied":
        return (arrays.floor(arrays.uniform(shape, generator) * 5) - 2) * 0.75
    values = arrays.normal(shape, generator)
    if kind == "wide":
        return values * 4.0
    if kind == "small":
        return values * 0.001
    if kind == "large":
        return values * 100.0
    if kind == "far":
        return values + 1000.0
    if kind == "shifted":
        return values + 1.5 + by_place(arrays, shape, generator)
    if kind == "heavy":
        squares = sum(arrays.normal(shape, generator) ** 2 for _ in range(3))
        return values / (squares / 3) ** 0.5
    if kind == "constant":
        value = float(arrays.normal([1], generator)[0])
        return values * 0.0 + value + math.copysign(0.5, value)
    return structured(arrays, values, generator) if kind == "structured" else values


def _spiked(arrays: Any, values: Any, generator: Any, kind: str, largest: float) -> Any:
    """Return values with some elements of every fourth row, or of a single one, replaced."""
    shape = arrays.shape(values)
    rows = values.reshape(-1, shape[-1] if shape else 1)
    count = rows.shape[0]
    share = arrays.uniform(list(rows.shape), generator)
    replaced = (share < 0.125) & (arrays.numbers_below(count) % 4 == (3 if count > 3 else 0)
                                  ).reshape(-1, 1)
    if kind == "nan":
        return arrays.where(replaced, math.nan, rows).reshape(shape)
    spikes = arrays.clip(rows * HUGE, -largest, largest)
    spikes = arrays.where(share < 0.03, math.inf, spikes)
    spikes = arrays.where((share > 0.03) & (share < 0.06), -math.inf, spikes)
    return arrays.where(replaced, spikes, rows).reshape(shape)


def _bounded(arrays: Any, shape: list[int], generator: Any, kind: str) -> Any:
    """Return values from 0 to 1."""
    share = arrays.uniform(shape, generator)
    if kind == "wide":  # near both ends
        return arrays.where(share < 0.5, 2 * share ** 2, 1 - 2 * (1 - share) ** 2)
    if kind == "shifted":
        return arrays.clip((1 + share) / 2 + by_place(arrays, shape, generator) / 8, 0.0, 1.0)
    if kind == "heavy":  # most are small
        return share ** 6
    if kind == "tied":
        return arrays.floor(share * 4) / 3.0001
    if kind == "constant":
        return share * 0.0 + float(arrays.uniform([1], generator)[0])
    return structured(arrays, share, generator) if kind == "structured" else share


def by_place(arrays: Any, shape: list[int], generator: Any) -> Any:
    """Return numbers around 0: sums of a step for each bit that is set in an element's place.

    Each step is drawn from -STEP to STEP, and places are counted from a random number.
    """
    count = math.prod(shape)
    first = int(float(arrays.uniform([1], generator)[0]) * FEW_PLACES)
    whole = (first + count - 1) // FEW_PLACES + 1
    within, of_each = (_steps(arrays, many, generator) for many in (FEW_PLACES, whole))
    values = (of_each.reshape(-1, 1) + within.reshape(1, -1)).reshape(-1)[first:first + count]
    return (values - (values.mean() if count else 0.0)).reshape(shape)


def _steps(arrays: Any, count: int, generator: Any) -> Any:
    """Return the sum of the steps of the bits of each number below `count`."""
    at = arrays.numbers_below(count)
    return sum(((at >> bit) & 1) * (2 * float(arrays.uniform([1], generator)[0]) - 1) * STEP
               for bit in range(max(1, (count - 1).bit_length())))


def structured(arrays: Any, values: Any, generator: Any) -> Any:
    """Return dense values with about two thirds of the rows replaced, or parts of a single row."""
    shape = arrays.shape(values)
    columns = shape[-1] if shape else 1
    rows = values.reshape(-1, columns)
    count = rows.shape[0]
    at = int(float(arrays.uniform([1], generator)[0]) * ROW_KINDS)
    across = arrays.numbers_below(columns)
    if count > 1:
        rows = rows * 1.0
        for number in REPLACED:
            first = (number - at) % ROW_KINDS
            some = rows[first::ROW_KINDS]
            hot = across == ((first + ROW_KINDS * arrays.numbers_below(some.shape[0])) % columns
                             ).reshape(-1, 1)
            arrays.put(some, _replaced(arrays, some, number, hot, generator))
        return rows.reshape(shape)
    kind = ((across * ROW_KINDS // columns + at) % ROW_KINDS).reshape(1, -1)
    for number in REPLACED:
        rows = arrays.where(kind == number, _replaced(
            arrays, rows, number, (across % 17 == 0).reshape(1, -1), generator), rows)
    return rows.reshape(shape)


def _replaced(arrays: Any, rows: Any, number: int, hot: Any, generator: Any) -> Any:
    """Return rows of one kind: zero, sparse, sorted, or zero but for the `hot` elements."""
    if number == 4:
        return arrays.sorted_rows(rows)
    if number == 3:
        hot = arrays.uniform(list(rows.shape), generator) >= 0.9
    return arrays.where(hot, rows, rows * 0.0) if number != 2 else rows * 0.0
