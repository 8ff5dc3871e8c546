"""A case in the oracle's memory: its inputs, the reference's answers, what can be compared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from .arrays import int_bounds
from .inputs import SPIKED

OUT_OF_RANGE = re.compile(r"out of (range|bounds)|device-side assert|class values must be",
                          re.IGNORECASE)
MOST_LEFT_OUT = 0.5
"""The largest share of expected values that may be non-finite, unless the inputs hold such values.
"""


class NoAnswer(ValueError):
    """The reference has no usable answer for these inputs."""


class Contents:
    """Input values by tensor, flattened and in their declared dtypes, and the expected outputs."""

    def __init__(self, arrays: Any, tensors: list[dict[str, Any]], kind: str) -> None:
        self.arrays, self.tensors, self.kind = arrays, tensors, kind
        self.notes: list[str] = []
        """Which expected values are not compared, and whether the CPU computed them."""
        self.values: dict[str, Any] = {}
        self.expected: list[Any] = []
        self.dtypes: list[str] = []

    def move(self, tensor: dict[str, Any], to: list[int], source: list[int]) -> None:
        """Copy element `source[i]` to `to[i]` for all i at once."""
        count = math.prod(tensor["shape"])
        if not all(0 <= at < count for at in (*to, *source)):
            raise IndexError(f"moves an element outside of {count}")
        name = tensor["name"]
        self.values[name] = self.arrays.moved(self.values[name], to, source)


class ExpectedValues:
    """Computes the expected values of cases with a reference."""

    def __init__(self, arrays: Any, reference: Any) -> None:
        self.arrays, self.reference = arrays, reference
        self.card_fault = ""
        """Why the card no longer answers this process, if an index was out of range there."""

    def compute(self, case: Contents, dtypes: list[str]) -> None:
        """Compute and keep a case's expected outputs, with notes on what is not compared."""
        arrays = self.arrays
        case.expected, case.dtypes = self.results(case), dtypes
        outputs = [t for t in case.tensors if t["role"] in ("output", "inout")]
        for index, value in enumerate(case.expected):
            name = outputs[index]["name"] if index < len(outputs) else "the returned value"
            if index < len(outputs) and arrays.shape(value) != outputs[index]["shape"]:
                raise ValueError(f"the reference gave shape {arrays.shape(value)} "
                                 f"for {name}, declared {outputs[index]['shape']}")
            dtype = dtypes[index] if index < len(dtypes) else ""
            case.expected[index] = self._comparable(case, value, name, dtype)

    def _comparable(self, case: Contents, value: Any, name: str, dtype: str) -> Any:
        """Return expected values, with NaN for those that are too large for their dtype.

        Raises NoAnswer if too few are finite.
        """
        arrays, count = self.arrays, math.prod(self.arrays.shape(value))
        largest = arrays.largest(dtype) if "float" in dtype else math.inf
        if not arrays.peak(value) <= largest:
            value = arrays.where((abs(value) > largest) & (abs(value) < math.inf), math.nan, value)
        odd, first = arrays.not_finite(value)
        if not odd:
            return value
        what = f"{odd} of {count} expected values of {name} are not finite" \
               f"{' in ' * bool(dtype)}{dtype}, the first at index {first}"
        if odd > (count - 1 if case.kind in SPIKED else MOST_LEFT_OUT * count):
            raise NoAnswer(f"on {case.kind} inputs {what}: declare low, high or a structure of the "
                           "inputs for which the reference gives finite values")
        case.notes.append(f"{what}: of these, only infinite ones were compared")
        return value

    def results(self, case: Contents,
                change: Callable[[dict[str, Any]], None] | None = None) -> list[Any]:
        """Return the reference's outputs; `change` may alter its arguments.

        The CPU computes them where the card has no room.
        """
        places = (False, False, True) if self.reference.runs_on_host else (False, False)
        for attempt, on_host in enumerate(places, 1):
            try:
                return self._results(case, change, on_host=on_host)
            except self.arrays.NoRoom:
                if attempt == len(places):
                    raise
            except Exception as error:
                if not OUT_OF_RANGE.search(f"{type(error).__name__}: {error}"):
                    raise
                text = f"an index is out of range on {case.kind} inputs: " \
                    f"{_describe_drawn_integers(case)}"
                self.card_fault = text if "device-side" in str(error) else ""
                raise NoAnswer(text) from None
            self.arrays.release()  # outside of the handler, which holds the failed call's values
        raise AssertionError

    def _results(self, case: Contents, change: Callable[[dict[str, Any]], None] | None, *,
                 on_host: bool) -> list[Any]:
        with self.arrays.on_host() if on_host else nullcontext():
            values = dict(self.reference.values(case.tensors, case.values))
            if change is not None:
                change(values)
            results = self.reference.results(case.tensors, values)
        if on_host:
            case.notes.append("the reference ran on the CPU: it does not fit in the card's memory")
        del values
        results = [self.arrays.as_wide(value) for value in results]
        self.arrays.finish()  # an error of the card is then raised for this case
        return results

    def trivial(self, case: Contents, other: list[Any]) -> list[dict[str, Any]]:
        """Return the relative error of each trivial answer: output, name, relative error.

        `other` are the expected values of other inputs.
        """
        answers = []
        for index, want in enumerate(case.expected):
            for name, fake in self._trivial_answers(case, want, other[index:index + 1]):
                _, relative, bad = self.arrays.errors(fake, want)
                answers.append({"output": index, "name": name,
                                "relative": None if bad else relative})
        return answers

    def _trivial_answers(self, case: Contents, want: Any,
                         other: list[Any]) -> Iterator[tuple[str, Any]]:
        """Yield trivial answers one by one: a card may have no room for all of them."""
        arrays, shape = self.arrays, self.arrays.shape(want)
        yield "zeros", arrays.full(want, 0.0)
        yield "half of the answer", want / 2
        if math.prod(shape) > 1:  # of one element, the mean is the answer itself
            mean = float(want.mean())
            yield "constant", arrays.full(want, mean if math.isfinite(mean) else 1.0)
        alike = [case.values[tensor["name"]] for tensor in case.tensors
                 if tensor["name"] in case.values and tensor["shape"] == shape]
        for value in alike[-1:]:
            yield "copied input", arrays.as_wide(value.reshape(shape))
        for answer in other:
            yield "the answer to other inputs", answer

    def errors(self, case: Contents, got: list[Any]) -> dict[str, Any]:
        """Return the errors of outputs against the expected ones."""
        arrays = self.arrays
        answer: dict[str, Any] = {"absolute": 0.0, "bad": 0, "lost": 0.0, "each": []}
        for value, want in zip(got, case.expected, strict=True):
            absolute, relative, bad = arrays.errors(value, want)
            if case.notes and case.kind not in SPIKED:
                bad += arrays.other_infinities(value, want)
            answer["absolute"] = max(answer["absolute"], absolute)
            answer["bad"] += bad
            answer["lost"] = max(answer["lost"], arrays.lost(value, want))
            answer["each"].append(relative if math.isfinite(relative) else None)
        answer["relative"] = None if None in answer["each"] else max(answer["each"], default=0.0)
        return answer


def _describe_drawn_integers(case: Contents) -> str:
    """Return which inputs may hold the index out of range, and what to write in the task."""
    drawn = [f"{tensor['name']} is drawn from {first} to {end - 1}"
             for tensor in case.tensors if tensor["name"] in case.values
             and "float" not in tensor["dtype"] and not tensor.get("data")
             for first, end in [int_bounds(tensor["low"], tensor["high"])]]
    return f"{' and '.join(drawn)}: write low and high, such as the name of a size, in the task" \
        if drawn else "no input is a drawn integer, so the reference's own code computes the index"
