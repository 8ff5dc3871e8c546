"""The array operations of the oracle, on torch: draw inputs, convert bytes, measure errors."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import secrets
from typing import Any

from .arrays_numpy import middle

SAMPLE = 1 << 20
KEY = 1 << 16
"""Words that a digest takes together."""
SAMPLED = 1 << 18
"""Values of a row from which its size is estimated."""


class TorchArrays:
    """Works on float64 tensors, on the judged GPU or on the CPU, without numpy."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.device = device if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))
        self.where, self.floor = torch.where, torch.floor
        self._scratch: Any = None
        self._key: Any = None

    def generator(self, seed: int) -> Any:
        return self.torch.Generator(device=self.device).manual_seed(seed)

    def normal(self, shape: list[int], generator: Any) -> Any:
        return self.torch.randn(shape, generator=generator, device=self.device)

    def uniform(self, shape: list[int], generator: Any) -> Any:
        return self.torch.rand(shape, generator=generator, device=self.device)

    def clip(self, value: Any, low: float, high: float) -> Any:
        return value.clamp(low, high)

    def sorted_rows(self, value: Any) -> Any:
        return value.sort(dim=-1).values

    def counted(self, count: int) -> Any:
        return self.torch.arange(count, device=self.device)

    def largest(self, dtype: str) -> float:
        return float(self.torch.finfo(getattr(self.torch, dtype)).max)

    def share(self, nbytes: int) -> tuple[Any, Any]:
        """Return new memory that another process can map, and its bytes as a tensor.

        It is the GPU's own if the GPU allows that, else the machine's.
        """
        from ..memory.host_memory import HostMemory

        memory: Any
        if self.device != "cpu" and self.torch.version.hip is None:
            from ..memory.device_memory import DeviceMemory

            try:
                memory = DeviceMemory.create(nbytes)
                return memory, memory.tensor()
            except (OSError, AttributeError):  # the driver or this torch is too old
                pass
        memory = HostMemory.create(nbytes)
        return memory, memory.tensor()

    def typed(self, raw: Any, dtype: str) -> Any:
        """Return bytes, row by row, as values of a dtype."""
        return raw.view(getattr(self.torch, dtype))

    def to_native(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self.torch, dtype)).reshape(-1)

    def strided(self, flat: Any, shape: list[int], layout: str) -> Any:
        """Return values in a shape: a view of every other column, or a transposed one."""
        if layout == "columns":
            return flat.view([*shape[:-1], 2 * shape[-1]])[..., ::2]
        if layout == "transposed":
            return flat.view([*shape[:-2], shape[-1], shape[-2]]).transpose(-1, -2)
        return flat.view(shape)

    def moved(self, flat: Any, to: list[int], source: list[int]) -> Any:
        """Return the values with element `source[i]` copied to `to[i]`, all at once."""
        changed = self._countable(flat.clone())
        there, here = (self.torch.tensor(at, device=flat.device) for at in (to, source))
        changed[there] = self._countable(flat)[here]
        return changed.view(flat.dtype)

    def reversed(self, flat: Any) -> Any:
        return self._countable(flat).flip(0).view(flat.dtype)

    def _countable(self, flat: Any) -> Any:
        """Return eight-bit values as integers: eight-bit floats cannot be indexed everywhere."""
        return flat.view(self.torch.uint8) if flat.dtype.itemsize == 1 else flat

    def digest(self, value: Any) -> str:
        """Return a digest of the bytes: on a GPU a linear hash with a secret key."""
        torch = self.torch
        raw = value.contiguous().reshape(-1).view(torch.uint8)
        if raw.device.type == "cpu":
            count = raw.numel()
            return hashlib.sha256((ctypes.c_char * count).from_address(raw.data_ptr())
                                  if count else b"").hexdigest()
        if self._key is None:
            self._key = torch.tensor([secrets.randbits(63) | 1 for _ in range(2 * KEY)],
                                     device=raw.device).view(2, KEY)
        whole = raw.numel() // (8 * KEY)
        rows = raw[:whole * 8 * KEY].view(torch.int64).view(whole, KEY)
        rest = torch.zeros(8 * KEY, dtype=torch.uint8, device=raw.device)
        rest[:raw.numel() - whole * 8 * KEY] = raw[whole * 8 * KEY:]
        sums = [(rest.view(torch.int64) * self._key[0]).sum().view(1)]
        for first in range(0, whole, KEY // 16):
            sums.append((rows[first:first + KEY // 16] * self._key[0]).sum(dim=1))
        every = torch.cat(sums)
        return f"{int((every * self._key[1][:len(every)]).sum()):x}"

    def join(self, parts: list[Any]) -> Any:
        joined = self.torch.cat([self._countable(part) for part in parts])
        return joined.view(parts[0].dtype)

    def windows(self, tape: Any, starts: list[int], length: int) -> Any:
        """Return for each start the `length` values from there on, as rows."""
        raw = self._countable(tape)
        places = self.torch.tensor(starts, device=raw.device)
        return raw.unfold(0, length, 1)[places].view(tape.dtype)

    def widen(self, native: Any, shape: list[int], *, wide: bool = True) -> Any:
        """Return values as the reference takes them: float64 or int64, unless not `wide`."""
        tensor = native.reshape(shape).to(self.device)
        if not wide:
            return tensor.clone()
        return tensor.to(self.torch.float64 if tensor.is_floating_point() else self.torch.int64)

    def noise(self, count: int, seed: int) -> Any:
        """Return random numbers from 0 to 1, in float32."""
        return self.torch.rand(count, generator=self.generator(seed), device=self.device)

    def noisy(self, rows: Any, noise: Any, low: float | None, high: float | None) -> Any:
        """Return rows changed by noise from 0 to 1, within bounds.

        Floats are drawn towards the middle of their bounds, each by at most an eighth. The integers
        of a row are rotated together: equal ones stay equal.
        """
        if not rows.is_floating_point():
            first, end = int(low or 0), 2 if high is None else int(high)
            steps = (noise[:, :1] * (end - first)).long()
            return ((rows.long() - first + steps) % max(1, end - first) + first).to(rows.dtype)
        values = rows.float() if rows.dtype.itemsize == 1 else rows
        factor = (1 - noise / 8).to(values.dtype)
        center = middle(low, high)
        changed = (values - center) * factor + center if center else values * factor
        return changed.to(rows.dtype)

    def copied(self, values: Any) -> Any:
        return values.clone()

    def put(self, view: Any, values: Any) -> None:
        view.copy_(values)

    def equal(self, left: Any, right: Any) -> bool:
        kind = self.torch.uint8
        left, right = (value.contiguous().reshape(-1).view(kind) for value in
                       (left, right.to(left.device, left.dtype)))
        return bool(self.torch.equal(left, right))

    def finish(self) -> None:
        """Wait until all that was written is visible to other processes."""
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def flush(self, nbytes: int) -> None:
        """Empty a cache of `nbytes` on the GPU by writing twice as much."""
        if self._scratch is None or self._scratch.numel() != 2 * nbytes:
            self._scratch = self.torch.empty(2 * nbytes, dtype=self.torch.uint8,
                                             device=self.device)
        self._scratch.zero_()
        self.finish()

    def differences(self, got: Any, want: Any, limit: float) -> list[float]:
        """Return the largest relative difference of each row, infinite where one is not finite.

        A difference is relative as in `errors`; where all are below `limit`, it may be overstated.
        Values that are finite on neither side agree.
        """
        torch = self.torch
        if got.dtype != want.dtype or got.dtype.itemsize == 1 or not got.is_floating_point():
            got, want = got.double(), want.double()
        kind = torch.float64 if got.dtype == torch.float64 else torch.float32
        step = max(1, want.shape[1] // SAMPLED)
        scale = self._scale_of_rows(want[:, ::step], kind) / 2  # of a sample: a bound with a margin
        rows: list[float] = (torch.linalg.vector_norm(got - want, math.inf, dim=1).to(kind)
                             / scale).tolist()
        if all(row <= limit for row in rows):
            return rows
        left, right = torch.isfinite(got), torch.isfinite(want)
        one = (left != right).any(dim=1)
        got, want = (torch.where(left & right, value, torch.zeros_like(value)).to(kind)
                     for value in (got, want))
        scale = self._scale_of_rows(want, kind)[:, None]
        rows = ((got - want).abs_() / torch.maximum(want.abs(), scale)).amax(dim=1).masked_fill(
            one, math.inf).tolist()
        return rows

    def _scale_of_rows(self, values: Any, kind: Any) -> Any:
        scale = self.torch.linalg.vector_norm(values, dim=1, dtype=kind) / values.shape[1] ** 0.5
        return self.torch.where(scale == 0, self.torch.ones_like(scale), scale)

    def nudged(self, value: Any, part: float, generator: Any) -> Any:
        """Return the value with every element scaled by 1 + part or 1 - part, at random."""
        if value.dtype != self.torch.float64:
            return value
        side = self.torch.rand(value.shape, generator=generator, device=self.device) - 0.5
        return value * (1 + part * side.sign().double())

    def errors(self, got: Any, want: Any) -> tuple[float, float, int]:
        """Return the largest absolute error, the largest relative one, and the non-finite count.

        An error is relative to the expected value or to the root mean square of all expected
        values, whichever is larger.
        """
        torch = self.torch
        if not want.numel():
            return 0.0, 0.0, 0
        finite = torch.isfinite(got) & torch.isfinite(want)
        bad = int((~torch.isfinite(got) & torch.isfinite(want)).sum())
        difference = torch.where(finite, (got - want).abs(), torch.zeros_like(want))
        relative = difference / want.abs().clamp(min=self.scale(want))
        return float(difference.max()), float(relative.max()), bad

    def scale(self, want: Any) -> float:
        return float(want.square().mean().sqrt()) or 1.0

    def typical(self, got: Any, want: Any) -> float:
        """Return the 90th percentile of the relative errors."""
        flat = ((got - want).abs() / want.abs().clamp(min=self.scale(want))).reshape(-1)
        if not flat.numel():
            return 0.0
        return float(flat[:: max(1, flat.numel() // SAMPLE)].quantile(0.9))

    def as_wide(self, value: Any) -> Any:
        return self.torch.as_tensor(value).to(self.device).to(self.torch.float64)

    def finite(self, value: Any) -> bool:
        return bool(self.torch.isfinite(value).all())

    def peak(self, value: Any) -> float:
        return float(value.abs().max()) if value.numel() else 0.0

    def shape(self, value: Any) -> list[int]:
        return list(value.shape)

    def full(self, like: Any, value: float) -> Any:
        return self.torch.full_like(like, value)
