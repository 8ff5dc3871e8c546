"""The PyTorch functions over rows, each by statistics of its input's rows and a line of code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.rewrites.module_graph import Ref, TensorForm
from engine.rewrites.template_catalog import spellings

FUNCTIONAL = "torch.nn.functional."
DEFAULT_EPS = 1.1920928955078125e-07
"""What F.rms_norm adds without `eps`, for float32 and shorter floats."""

Statistic = Literal["sum", "squares", "max", "min", "peak", "moments"]
"""What a pass over a row gives: `sum`, `max` and `min` of its values, the sum of `squares`; `peak`:
the maximum, the `total` of exponentials of the distances to it, and `finite`: that total, or NaN if
it is infinite; `moments`: mean, variance."""


@dataclass(frozen=True, kw_only=True)
class RowOp:
    """A function of rows, as code over `{value}`, the statistics and the function's arguments.

    Code that names `{value}` gives a result of the input's shape, other code one value a row.
    """

    statistic: Statistic
    code: str


REDUCTIONS: Mapping[str, RowOp] = {
    "torch.sum": RowOp(statistic="sum", code="{sum}"),
    "torch.mean": RowOp(statistic="sum", code="{sum} / columns"),
    "torch.amax": RowOp(statistic="max", code="{max}"),
    "torch.amin": RowOp(statistic="min", code="{min}"),
    "torch.max": RowOp(statistic="max", code="{max}"),
    "torch.min": RowOp(statistic="min", code="{min}"),
    "torch.var": RowOp(
        statistic="moments", code="{variance} * columns / (columns - {correction})"),
    "torch.std": RowOp(
        statistic="moments", code="tl.sqrt({variance} * columns / (columns - {correction}))"),
    "torch.norm": RowOp(statistic="squares", code="tl.sqrt({squares})"),
    "torch.linalg.vector_norm": RowOp(statistic="squares", code="tl.sqrt({squares})"),
    "torch.logsumexp": RowOp(statistic="peak", code="tl.log({total}) + {peak}"),
    "torch.softmax": RowOp(
        statistic="peak", code="tl.exp({value} - {peak}) / {finite}"),
    "torch.log_softmax": RowOp(
        statistic="peak", code="{value} - {peak} - tl.log({finite})")}
"""Functions with an argument `dim`."""
LAYERS: Mapping[str, RowOp] = {
    "layer_norm": RowOp(
        statistic="moments", code="({value} - {mean}) / tl.sqrt({variance} + {eps})"),
    "rms_norm": RowOp(
        statistic="squares", code="{value} / tl.sqrt({squares} / columns + {eps})"),
    "normalize": RowOp(
        statistic="squares",
        code="{value} / tl.maximum("
             "tl.sqrt({squares}), {eps}, propagate_nan=tl.PropagateNan.ALL)")}
POOLS = {f"adaptive_avg_pool{dims}d": dims for dims in (1, 2, 3)}


def op_of(target: str, bound: Mapping[str, Any],
          form: TensorForm) -> tuple[RowOp, tuple[int, ...]] | None:
    """Return the op of a call and the dimensions of its input that make a row; None without one."""
    names, rank = spellings(target), form.dim()
    last = target.rpartition(".")[2]
    if target.startswith(FUNCTIONAL) and last in POOLS:
        dims = POOLS[last]
        if bound["output_size"] in (1, (1,) * dims, [1] * dims) and rank > dims:
            return REDUCTIONS["torch.mean"], tuple(range(rank - dims, rank))
    if target.startswith(FUNCTIONAL) and last in LAYERS:
        if last == "normalize":
            return (LAYERS[last], (bound["dim"] % rank,)) if bound["p"] == 2 else None
        return LAYERS[last], tuple(range(rank - len(bound["normalized_shape"]), rank))
    for name in names:
        if name in REDUCTIONS and _is_plain(name, bound):
            dim = bound["dim"]
            axes = tuple(sorted(
                each % rank for each in ((dim,) if isinstance(dim, int) else dim)))
            is_defined = constants(target, bound)["correction"] < math.prod(
                form.shape[axis] for axis in axes)
            return (REDUCTIONS[name], axes) if is_defined else None
    return None


def _is_plain(name: str, bound: Mapping[str, Any]) -> bool:
    """Return whether a reduction has a dimension, and is the Euclidean one of a norm."""
    dim = bound.get("dim")
    order = bound.get("p", bound.get("ord", 2))
    is_known = isinstance(dim, int) or (isinstance(dim, list | tuple) and len(dim) > 0 and all(
        isinstance(each, int) for each in dim))
    return is_known and ("norm" not in name or order in (2, "fro"))


def constants(target: str, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and tensors that a call's code names."""
    named = dict(bound)
    if target == f"{FUNCTIONAL}rms_norm" and named["eps"] is None:
        named["eps"] = DEFAULT_EPS
    if named.get("correction") is None:
        named["correction"] = int(named.get("unbiased", True))
    return named


@dataclass(frozen=True)
class Pick:
    """Takes one value of each row: at the column that `index` gives, or at the row's own number."""

    index: Ref | None


def pick_of(target: str, bound: Mapping[str, Any], form: TensorForm) -> Pick | None:
    """Return which column a call takes of each row of its input, None if it does something else."""
    names = spellings(target)
    if "torch.gather" in names or "torch.take_along_dim" in names:
        index = bound.get("index", bound.get("indices"))
        is_last = isinstance(bound["dim"], int) and bound["dim"] % form.dim() == form.dim() - 1
        return Pick(index) if is_last and isinstance(index, Ref) else None
    if "torch.diagonal" in names and form.dim() == 2 and form.shape[0] == form.shape[1] \
            and bound["offset"] == 0 and {bound["dim1"] % 2, bound["dim2"] % 2} == {0, 1}:
        return Pick(None)
    return None
