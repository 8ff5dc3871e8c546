"""Learns from a few small calls which values a module's inputs and weights have.

Standard library and torch.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from .call_layout import Layout, leaves
from .problem_source import Problem, ProblemSource
from .value_range import value_range

SEEDS = 3
MOST_WEIGHTS = 1 << 28
"""Elements of a model that is made to see the range of its weights."""
TRIED = 7
"""Every so many values of an input are set to a bound, to see whether the module can take it."""


class InputRanges:
    """The problem of a source at the sizes of a task, and `real` at sizes that it is called with.
    """

    def __init__(self, source: ProblemSource, problem: Problem, real: Problem) -> None:
        self.source, self.problem, self.real = source, problem, real

    def learn(self, layout: Layout, weights: dict[str, Any], sizes: set[str], *,
              training: bool) -> dict[str, dict[str, Any]]:
        """Return bounds and structure by argument, with where they come from.

        `sizes` are the names of which shapes are made: an upper bound may follow one.
        """
        drawn = [self._drawn(self.real, seed) for seed in range(SEEDS)]
        count = sum(value.numel() for value in weights.values())
        model = (self.problem if count <= MOST_WEIGHTS else self.real).model("cpu")
        own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        ranges = {name: value_range(*(each[name] for each in drawn)) for name in layout.tensors}
        for name, value in layout.tensors.items():
            if bounds := self.problem.bounds(value):
                ranges[name] |= {"low": bounds[0], "high": bounds[1], "structure": None,
                                 "why": "the bounds of torch.randint"}
            if not value.is_floating_point() and ranges[name]["structure"] is None:
                self._follow(name, ranges[name], sizes, is_known=bounds is not None)
            elif value.is_floating_point():
                self._keep_finite(name, ranges[name], drawn, training=training)
        return ranges | {name: value_range(own[name]) for name in weights}

    def _drawn(self, problem: Problem, seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return Layout(problem, problem.inputs("cpu")).tensors

    def _follow(self, name: str, known: dict[str, Any], sizes: set[str], *,
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

    def _keep_finite(self, name: str, known: dict[str, Any],
                     drawn: list[dict[str, torch.Tensor]], *, training: bool) -> None:
        """Replace a bound that no call had and at which the module's answer is not finite."""
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
        model = copy.deepcopy(self.real.model("cpu")).train(training)
        with torch.no_grad():
            return all(bool(torch.isfinite(value).all()) for value in leaves(model(*inputs)))
