"""The array operations of the oracle, on numpy: draw inputs, convert bytes, measure errors."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from .arrays import Arrays, middle


class NumpyArrays(Arrays):
    """Works on float64 arrays; numpy has no bfloat16 and no eight-bit floats."""

    chunk, direct, large = 1 << 16, 1 << 13, 1 << 62
    NoRoom: tuple[type[Exception], ...] = ()

    def __init__(self) -> None:
        import numpy

        super().__init__(numpy)
        self.np = numpy
        self.quiet = partial(numpy.errstate, all="ignore")

    def dtype(self, name: str) -> Any:
        return self.np.dtype(name)

    def generator(self, seed: int) -> Any:
        return self.np.random.default_rng(seed)

    def normal(self, shape: list[int], generator: Any) -> Any:
        return generator.standard_normal(shape)

    def uniform(self, shape: list[int], generator: Any) -> Any:
        return generator.random(shape)

    def sorted_rows(self, value: Any) -> Any:
        return self.np.sort(value, axis=-1)

    def numbers_below(self, count: int) -> Any:
        return self.np.arange(count)

    def shuffled(self, count: int, generator: Any) -> Any:
        """Return the numbers below a count in random order."""
        return generator.permutation(count)

    def share(self, nbytes: int, count: int) -> list[tuple[Any, Any]]:
        """Return new memory for each of `count` other processes, and its bytes as an array."""
        from ..memory.host_memory import HostMemory

        return [(memory, self.np.frombuffer(memory.map, dtype=self.np.uint8))
                for memory in (HostMemory.create(nbytes) for _ in range(count))]

    def room(self, nbytes: int) -> int:
        return nbytes

    def from_bytes(self, raw: bytes, dtype: str) -> Any:
        return self.np.frombuffer(raw, dtype=dtype)

    def to_native(self, array: Any, dtype: str) -> Any:
        return self.np.asarray(array).astype(dtype).reshape(-1)

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

    def places(self, indices: list[list[int]]) -> Any:
        return self.np.array(indices, dtype="int64")

    def windows(self, tape: Any, starts: Any, length: int) -> Any:
        """Return for each start the `length` values from there on, as rows."""
        return self.np.lib.stride_tricks.sliding_window_view(tape, length)[starts]

    def widen(self, native: Any, shape: list[int], *, wide: bool = True) -> Any:
        """Return values as the reference takes them: float64 or int64, or as is if not `wide`."""
        array = native.reshape(shape)
        return array.astype("float64" if array.dtype.kind == "f" else "int64") if wide \
            else array.copy()

    def host_zeros(self, shape: list[int], dtype: str) -> Any:
        """Return zeros in the host's memory."""
        return self.np.zeros(shape, dtype)

    def on_host_as(self, value: Any, dtype: str) -> Any:
        """Return values of a dtype, in a row in the host's memory."""
        return self.np.ascontiguousarray(value, dtype)

    def address(self, value: Any) -> int:
        return int(value.ctypes.data)

    def from_host(self, value: Any) -> Any:
        return value

    def noise(self, count: int, seed: int, like: Any) -> Any:
        """Return random factors for values like these, see TorchArrays.noise."""
        noise = self.np.random.default_rng(seed).random(count, dtype=self.np.float32)
        return (1 - noise / 8).astype(like.dtype)

    def scaled(self, out: Any, values: Any, factors: Any, low: float | None,
               high: float | None) -> None:
        """Write values, moved by factors towards the middle of their bounds."""
        if center := values.dtype.type(middle(low, high)):
            self.np.add((values - center) * factors, center, out=out)
        else:
            self.np.multiply(values, factors, out=out)

    def write_windows(self, *_: Any) -> bool:
        return False  # windows are copied and then scaled

    def rotated(self, out: Any, values: Any, noise: Any, steps: Any, first: int, end: int) -> None:
        """Write integers rotated within their bounds by noise, if any, and by their row's step."""
        np, word = self.np, self.np.uint32 if end - first < 1 << 30 else self.np.uint64
        many, low = word(end - first), word(first % (1 << 8 * word().itemsize))
        by = (steps % np.int64(many)).astype(word)
        if noise is not None:
            by = noise.astype(word) + by
            by = np.minimum(by, by - many)  # unsigned: below zero it wraps to a large number
        values = values.astype(word) - low + by
        out[:] = np.minimum(values, values - many) + low

    def empty(self, count: int, like: Any) -> Any:
        return self.np.empty(count, like.dtype)

    def put(self, view: Any, values: Any) -> None:
        view[:] = values

    def equal(self, left: Any, right: Any) -> bool:
        left, right = (self.np.ascontiguousarray(value).reshape(-1) for value in (left, right))
        return bool(self.np.array_equal(left.view(self.np.uint8), right.view(self.np.uint8)))

    def finish(self) -> None:
        """Do nothing: what was written is visible to other processes."""

    def forget(self) -> None:
        """Do nothing: no memory outlives its values."""

    def flush(self, nbytes: int) -> None:
        """Do nothing: on the CPU the last-level cache holds the slots."""

    def excess(self, got: Any, want: Any, limit: float) -> Any:
        """Return by row a bound of its largest relative difference, as a multiple of `limit`.

        A row with at most 1 agrees; for others `differences` decides.
        """
        np = self.np
        count, columns = want.shape
        if got.dtype != want.dtype:
            return np.full(count, np.inf)
        if got.dtype.kind != "f":
            return np.where((got != want).any(axis=1), 2.0, 0.0)
        step, far = max(1, self.chunk // columns), np.empty(count)
        scratch = np.empty((min(step, count), columns), want.dtype)
        with self.quiet():
            for first in range(0, count, step):
                some = slice(first, first + step)
                off = np.subtract(got[some], want[some], out=scratch[:len(want[some])])
                far[some] = np.maximum(off.max(axis=1), -off.min(axis=1)) \
                    / self._scale_of_rows(want[some])
        return far / limit if limit > 0 else np.where(far == 0, 0.0, 2.0)

    def differences(self, got: Any, want: Any, limit: float = 0.0) -> list[float]:
        """Return the largest relative difference of each row, infinite where one is not finite.

        A difference is relative as in `errors`. Values that are finite on neither side agree.
        """
        del limit  # nothing is rounded here
        np = self.np
        with self.quiet():
            got, want = (value.astype("float64") for value in (got, want))
            left, right = np.isfinite(got), np.isfinite(want)
            got, want = (np.where(left & right, value, 0.0) for value in (got, want))
            size = np.maximum(np.abs(want), self._scale_of_rows(want)[:, None])
            relative = np.where((left != right).any(axis=1), np.inf,
                                (np.abs(got - want) / size).max(axis=1))
        return [float(value) for value in relative]

    def _scale_of_rows(self, values: Any) -> Any:
        """Return the root mean square of each row, or 1 where that is zero or not finite."""
        if values.dtype.itemsize < 4:
            values = values.astype("float32")
        scale = self.np.sqrt(self.np.einsum("ij,ij->i", values, values) / values.shape[1])
        scale[~(self.np.isfinite(scale) & (scale > 0))] = 1
        return scale

    def fetched(self, vectors: list[Any]) -> list[list[float]]:
        """Return what vectors contain."""
        return [vector.tolist() for vector in vectors]

    def scale(self, want: Any) -> float:
        return float(self.np.sqrt(self.np.mean(self.np.square(want)))) or 1.0

    def as_wide(self, value: Any) -> Any:
        return self.np.asarray(value, dtype="float64")
