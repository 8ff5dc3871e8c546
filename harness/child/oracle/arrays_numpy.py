"""The array operations of the oracle, on numpy: draw inputs, convert bytes, measure errors."""

from __future__ import annotations

from typing import Any

SAMPLE = 1 << 20


class NumpyArrays:
    """Works on float64 arrays; numpy has no bfloat16 and no eight-bit floats."""

    def __init__(self) -> None:
        import numpy

        self.np = numpy
        self.where, self.floor = numpy.where, numpy.floor

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

    def to_bytes(self, array: Any, dtype: str) -> bytes:
        return bytes(self.np.asarray(array).astype(dtype).tobytes())

    def from_bytes(self, data: bytes, dtype: str, shape: list[int], *, wide: bool = True) -> Any:
        array = self.np.frombuffer(data, dtype=dtype).reshape(shape)
        if not wide:
            return array.copy()
        return array.astype("float64") if dtype.startswith("float") else array.astype("int64")

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
