"""The array operations of the oracle, on numpy: draw inputs, convert bytes, measure errors."""

from __future__ import annotations

import hashlib
from typing import Any

SAMPLE = 1 << 20


def middle(low: float | None, high: float | None) -> float:
    """Return the value that contents are drawn towards: zero, or the middle between their bounds.
    """
    if low is None and high is None:
        return 0.0
    return ((0.0 if low is None else low) + (1.0 if high is None else high)) / 2


class NumpyArrays:
    """Works on float64 arrays; numpy has no bfloat16 and no eight-bit floats."""

    def __init__(self) -> None:
        import numpy

        self.np = numpy
        self.where, self.floor = numpy.where, numpy.floor
        self._scratch: Any = None

    def generator(self, seed: int) -> Any:
        return self.np.random.default_rng(seed)

    def normal(self, shape: list[int], generator: Any) -> Any:
        return generator.standard_normal(shape)

    def uniform(self, shape: list[int], generator: Any) -> Any:
        return generator.random(shape)

    def clip(self, value: Any, low: float, high: float) -> Any:
        return self.np.clip(value, low, high)

    def sorted_rows(self, value: Any) -> Any:
        return self.np.sort(value, axis=-1)

    def counted(self, count: int) -> Any:
        return self.np.arange(count)

    def largest(self, dtype: str) -> float:
        return float(self.np.finfo(dtype).max)

    def share(self, nbytes: int) -> tuple[Any, Any]:
        """Return new memory that another process can map, and its bytes as an array."""
        from ..memory.host_memory import HostMemory

        memory = HostMemory.create(nbytes)
        return memory, self.np.frombuffer(memory.map, dtype=self.np.uint8)

    def typed(self, raw: Any, dtype: str) -> Any:
        """Return bytes, row by row, as values of a dtype."""
        return raw.view(self.np.dtype(dtype))

    def to_native(self, array: Any, dtype: str) -> Any:
        return self.np.asarray(array).astype(dtype).reshape(-1)

    def strided(self, flat: Any, shape: list[int], layout: str) -> Any:
        """Return values in a shape; C kernels take no strided layouts."""
        return flat.reshape(shape)

    def moved(self, flat: Any, to: list[int], source: list[int]) -> Any:
        """Return the values with element `source[i]` copied to `to[i]`, all at once."""
        changed = flat.copy()
        changed[to] = flat[source]
        return changed

    def reversed(self, flat: Any) -> Any:
        return flat[::-1]

    def digest(self, value: Any) -> str:
        return hashlib.sha256(self.np.ascontiguousarray(value).data.cast("B")).hexdigest()

    def join(self, parts: list[Any]) -> Any:
        return self.np.concatenate(parts)

    def windows(self, tape: Any, starts: list[int], length: int) -> Any:
        """Return for each start the `length` values from there on, as rows."""
        return self.np.lib.stride_tricks.sliding_window_view(tape, length)[starts]

    def widen(self, native: Any, shape: list[int], *, wide: bool = True) -> Any:
        """Return values as the reference takes them: float64 or int64, unless not `wide`."""
        array = native.reshape(shape)
        if not wide:
            return array.copy()
        return array.astype("float64") if array.dtype.kind == "f" else array.astype("int64")

    def noise(self, count: int, seed: int) -> Any:
        """Return random numbers from 0 to 1, in float32."""
        return self.np.random.default_rng(seed).random(count, dtype=self.np.float32)

    def noisy(self, rows: Any, noise: Any, low: float | None, high: float | None) -> Any:
        """Return rows changed by noise from 0 to 1, within bounds; see torch's."""
        if rows.dtype.kind != "f":
            first, end = int(low or 0), 2 if high is None else int(high)
            steps = (noise[:, :1] * (end - first)).astype("int64")
            return ((rows.astype("int64") - first + steps) % max(1, end - first)
                    + first).astype(rows.dtype)
        factor = (1 - noise / 8).astype(rows.dtype, copy=False)
        center = middle(low, high)
        return (rows - center) * factor + center if center else rows * factor

    def copied(self, values: Any) -> Any:
        return values.copy()

    def put(self, view: Any, values: Any) -> None:
        view[:] = values

    def equal(self, left: Any, right: Any) -> bool:
        left, right = (self.np.ascontiguousarray(value).reshape(-1) for value in (left, right))
        return bool(self.np.array_equal(left.view(self.np.uint8), right.view(self.np.uint8)))

    def finish(self) -> None:
        """Wait until all that was written is visible to other processes."""

    def flush(self, nbytes: int) -> None:
        """Do nothing: on the CPU the last-level cache holds the slots."""

    def differences(self, got: Any, want: Any, limit: float) -> list[float]:
        """Return the largest relative difference of each row, infinite where one is not finite.

        A difference is relative as in `errors`; where all are below `limit`, it may be overstated.
        Values that are finite on neither side agree.
        """
        np = self.np
        kind = got.dtype if got.dtype.kind == "f" else np.dtype("float64")
        got, want = got.astype(kind, copy=False), want.astype(kind, copy=False)
        if self._scratch is None or self._scratch.dtype != kind or \
                self._scratch.size < got.size:  # new memory costs more than the work
            self._scratch = np.empty(got.size, kind)
        with np.errstate(all="ignore"):
            off = np.subtract(got, want, out=self._scratch[:got.size].reshape(got.shape))
            scale = np.sqrt(np.einsum("ij,ij->i", want, want) / want.shape[1])
            scale[scale == 0] = 1
            rows = np.maximum(off.max(axis=1), -off.min(axis=1)) / scale
            if not (rows <= limit).all():
                left, right = np.isfinite(got), np.isfinite(want)
                off = np.where(left & right, off, np.where(left == right, 0, np.inf))
                size = np.where(right, np.abs(want), 0)
                scale = np.sqrt(np.mean(np.square(size), axis=1, keepdims=True))
                scale[scale == 0] = 1
                rows = (off / np.maximum(size, scale)).max(axis=1)
        return [float(value) for value in rows]

    def nudged(self, value: Any, part: float, generator: Any) -> Any:
        """Return the value with every element scaled by 1 + part or 1 - part, at random."""
        if value.dtype != "float64":
            return value
        return value * (1 + part * self.np.sign(generator.random(value.shape) - 0.5))

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        """Return the largest absolute error, the largest relative one, and the non-finite count.

        An error is relative to the expected value or to the root mean square of all expected
        values, whichever is larger.
        """
        np = self.np
        bad = int(np.count_nonzero(~np.isfinite(got) & np.isfinite(want)))
        finite = np.isfinite(got) & np.isfinite(want)
        difference = np.abs(got - want, where=finite, out=np.zeros(got.shape))
        relative = difference / np.maximum(np.abs(want), self.scale(want))
        return float(difference.max(initial=0.0)), float(relative.max(initial=0.0)), bad

    def scale(self, want: Any) -> float:
        return float(self.np.sqrt(self.np.mean(self.np.square(want)))) or 1.0

    def typical(self, got: Any, want: Any) -> float:
        """Return the 90th percentile of the relative errors."""
        np = self.np
        relative = np.abs(got - want) / np.maximum(np.abs(want), self.scale(want))
        flat = relative.reshape(-1)
        return float(np.quantile(flat[:: max(1, flat.size // SAMPLE)], 0.9)) if flat.size else 0.0

    def as_wide(self, value: Any) -> Any:
        return self.np.asarray(value, dtype="float64")

    def finite(self, value: Any) -> bool:
        return bool(self.np.isfinite(value).all())

    def peak(self, value: Any) -> float:
        return float(self.np.abs(value).max(initial=0.0))

    def shape(self, value: Any) -> list[int]:
        return list(value.shape)

    def full(self, like: Any, value: float) -> Any:
        return self.np.full_like(like, value)
