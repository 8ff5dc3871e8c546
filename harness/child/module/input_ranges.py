"""Learns from a few small calls which values a module's inputs and weights have.

Standard library and torch.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from .problem_source import Layout, Problem, ProblemSource, in_mode, leaves

SEEDS = 3
MOST_WEIGHTS = 1 << 28
"""Most elements of a model that is made to learn the range of its weights."""
TRIED = 7
"""One in TRIED input values is set to a bound, to see whether the answer stays finite."""
LEAST_SEEN = 16
"""The fewest values from which a structure is recognised."""
ROUGH = {torch.float16: 0.01, torch.bfloat16: 0.05}
"""How far the sum of a row of probabilities may be from 1; 1e-4 in other dtypes."""


class InputRanges:
    """A source's problem at the sizes of a task, and at small sizes for real calls (`real`)."""

    def __init__(self, source: ProblemSource, problem: Problem, real: Problem) -> None:
        self.source, self.problem, self.real = source, problem, real

    def learn(self, layout: Layout, weights: dict[str, Any], sizes: set[str], *,
              training: bool) -> dict[str, dict[str, Any]]:
        """Return bounds and structure by argument, with where they come from.

        `sizes` are the names in shapes: an upper bound may follow one.
        """
        drawn = [self._drawn(self.real, seed) for seed in range(SEEDS)]
        count = sum(value.numel() for value in weights.values())
        model = (self.problem if count <= MOST_WEIGHTS else self.real).model("cpu")
        values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        ranges = {name: value_range(*(each[name] for each in drawn)) for name in layout.tensors}
        for name, value in layout.tensors.items():
            if bounds := self.problem.bounds(value):
                ranges[name] |= {"low": bounds[0], "high": bounds[1], "structure": None,
                                 "why": "the bounds of torch.randint"}
            if not value.is_floating_point() and ranges[name]["structure"] is None:
                self._name_followed_size(name, ranges[name], sizes, is_known=bounds is not None)
            elif value.is_floating_point():
                self._narrow_to_finite(name, ranges[name], drawn, training=training)
        return ranges | {name: value_range(values[name]) for name in weights}

    def _drawn(self, problem: Problem, seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return Layout(problem, problem.inputs("cpu")).tensors

    def _name_followed_size(self, name: str, known: dict[str, Any], sizes: set[str], *,
                            is_known: bool) -> None:
        """Name the size that an upper bound of integers follows, if one does."""
        problem = self.problem if is_known else self.real
        for size in sorted(sizes):
            value = problem.sizes[size]
            if not isinstance(value, int) or (not is_known and value != known["high"]):
                continue
            try:
                other = self.source.open({**problem.sizes, size: 2 * value})
                if is_known:
                    tensor = Layout(other, other.inputs("meta")).tensors[name]
                    high = (other.bounds(tensor) or (0, 0))[1]
                else:
                    high = int(max(self._drawn(other, seed)[name].max()
                                   for seed in range(SEEDS))) + 1
            except Exception:  # a person's module may fail in any way at other sizes
                continue
            if high == known["high"] + value or (not is_known and high > known["high"]):
                beyond = known["high"] - value
                known["high"] = size if not beyond else \
                    f"{size} {'+' if beyond > 0 else '-'} {abs(beyond)}"
                known["why"] += f", which follow {size}"
                return

    def _narrow_to_finite(self, name: str, known: dict[str, Any],
                          drawn: list[dict[str, torch.Tensor]], *, training: bool) -> None:
        """Replace a bound that no drawn value has and at which the module's answer is not finite.

        Only ranges that begin at 0 are changed.
        """
        if known["structure"] or known["low"] != 0:
            return
        seen = {"low": float(f"{min(float(each[name].min()) for each in drawn):.3g}"),
                "high": max(float(each[name].max()) for each in drawn)}
        for end, value in seen.items():
            if value != known[end] and self._is_finite(None, 0.0, training=training) \
                    and not self._is_finite(name, known[end], training=training):
                known["why"] = f"the answer is not finite at {known[end]:g}"
                known[end] = value

    def _is_finite(self, name: str | None, bound: float, *, training: bool) -> bool:
        torch.manual_seed(0)
        inputs = self.real.inputs("cpu")
        if name is not None:
            tensor = Layout(self.real, inputs).tensors[name]
            at = torch.arange(tensor.numel()).reshape(tensor.shape) % TRIED == 0
            tensor.copy_(tensor.masked_fill(at, bound))
        model = in_mode(copy.deepcopy(self.real.model("cpu")), training)
        with torch.no_grad():
            return all(bool(torch.isfinite(value).all()) for value in leaves(model(*inputs)))


def value_range(*tensors: torch.Tensor) -> dict[str, Any]:
    """Return bounds for values like these: none for values that look normally distributed.

    Infinite values, as in masks, count as the largest of their dtype: a task's are finite.
    """
    first = tensors[0]
    values = torch.cat([tensor.detach().nan_to_num().double().reshape(-1) for tensor in tensors])
    if not values.numel():
        return _range(None, None, "")
    if first.dtype == torch.bool:
        return _range(0, 2, "true or false")
    low, high = float(values.min()), float(values.max())
    if not first.is_floating_point():
        if high - low > 1 and _is_two_valued(values, low, high):
            return _range(int(low), int(high) + 1, "no other value in a few calls", "two_valued")
        return _range(int(low), int(high) + 1, "the values of a few calls")
    if low == high:
        return _range(low - 0.5, low + 0.5, f"around its value {low:g}")
    if structure := _row_structure(tensors, low, high):
        return _range(None, None, "each row sums to 1", structure)
    if _is_two_valued(values, low, high):
        return _range(low, high, "no other value in a few calls", "two_valued")
    if low >= 0 and high <= 1:
        return _range(0.0, 1.0, "between 0 and 1 in a call")
    if low >= 0:
        return _range(0.0, _rounded(high), "the values of a call")
    deviation = float(values.std()) if values.numel() > 1 else 1.0
    if 0.7 < deviation < 1.4 and high - low > 2.5 * deviation * min(1.0, values.numel() / 64):
        return _range(None, None, "normally distributed")
    return _range(-_rounded(-low), _rounded(high), "the values of a call")


def _range(low: float | None, high: float | None, why: str,
           structure: str | None = None) -> dict[str, Any]:
    return {"low": low, "high": high, "why": why, "structure": structure}


def _is_two_valued(values: torch.Tensor, low: float, high: float) -> bool:
    return values.numel() >= LEAST_SEEN and bool(((values == low) | (values == high)).all())


def _row_structure(tensors: tuple[torch.Tensor, ...], low: float, high: float) -> str:
    """Return the structure of rows that are probabilities, or logarithms of them; "" of others."""
    name = "probabilities" if low > 0 and high < 1 else "log_probabilities" if high < 0 else ""
    if not name or tensors[0].dim() < 1 or tensors[0].shape[-1] < 2 \
            or sum(tensor.numel() for tensor in tensors) < LEAST_SEEN:
        return ""
    tolerance = ROUGH.get(tensors[0].dtype, 1e-4)
    rows = [tensor.detach().double() for tensor in tensors]
    sums = [(part if low > 0 else part.exp()).sum(-1) for part in rows]
    return name if all(bool(((each - 1).abs() < tolerance).all()) for each in sums) else ""


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") or value
