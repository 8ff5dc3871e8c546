"""One set of inputs of one config class, and the errors measured on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

DISTRIBUTIONS = ("normal", "wide", "heavy", "structured", "shifted", "tied", "constant")
"""See harness/child/oracle/inputs.py."""


@dataclass(frozen=True, kw_only=True)
class TrivialAnswer:
    """The error of an answer that takes no work, such as zeros, for one output."""

    output: int
    name: str
    relative: float | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of inputs of one config class, in files; `skip` says why it is not used."""

    id: str
    config_class: str
    distribution: str
    tensors: tuple[dict[str, Any], ...]
    controls: tuple[TrivialAnswer, ...] = ()
    skip: str = ""
    notes: tuple[str, ...] = ()
    """Which expected values are not compared, and what is special about the others."""

    @property
    def footprint(self) -> int:
        """Return the bytes of all its tensors."""
        return sum(tensor["nbytes"] for tensor in self.tensors if tensor["role"] != "scalar")


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The errors of a candidate's outputs against the expected values.

    `relative` divides by the larger of the expected value and the root mean square of all expected
    values; `each` has that for each output. `lost` is the largest error of a row or a column
    relative to its own size, whatever the size of all others. `bad` counts values that should be
    finite and are not; `changed` names inputs that were overwritten. `digests` identify the
    outputs' bytes.

    `used` is the largest used share of the allowed error, `over` and `allowed` are the error and
    its limit at that output, the one with the number `worst`, and `basis` says where the limit
    comes from; see `against`.
    """

    absolute: float
    relative: float | None
    bad: int
    changed: tuple[str, ...] = ()
    each: tuple[float | None, ...] = ()
    digests: tuple[str, ...] = ()
    used: float | None = None
    over: float | None = None
    allowed: float | None = None
    basis: str = ""
    worst: int | None = None
    lost: float = 0.0

    def against(self, allowed: Sequence[float], basis: str) -> Errors:
        """Return the errors compared with the allowed error of each output."""
        each = self.each or (self.relative,)
        limits = [*allowed, *[min(allowed)] * len(each)][:len(each)]
        if None in each:
            return replace(self, used=None, over=None, allowed=min(limits), basis=basis)
        shares = [_share(error or 0.0, limit) for error, limit in zip(each, limits, strict=True)]
        worst = max(range(len(each)), key=lambda index: shares[index])
        return replace(self, used=shares[worst], over=each[worst], allowed=limits[worst],
                       basis=basis, worst=worst)

    def worse(self, other: Errors | None) -> Errors:
        """Return the worse of both by field; `bad` is the sum, `each` and `digests` are empty."""
        if other is None:
            return self
        relative = None if self.relative is None or other.relative is None \
            else max(self.relative, other.relative)
        most = max(self, other, key=lambda e: math.inf if e.used is None else e.used)
        return replace(most, absolute=max(self.absolute, other.absolute), relative=relative,
                       bad=self.bad + other.bad, each=(), digests=(),
                       lost=max(self.lost, other.lost),
                       changed=tuple(dict.fromkeys(self.changed + other.changed)))

    @property
    def right(self) -> bool:
        """Return whether these were compared with limits and are within them."""
        return (self.bad == 0 and not self.changed and self.used is not None
                and self.used <= 1)

    def within(self, tolerance: float) -> bool:
        return self.against([tolerance], "").right


def _share(error: float, limit: float) -> float:
    return 0.0 if error == 0 else error / limit if limit > 0 else math.inf
