"""The array operations of the oracle, on torch: draw inputs and convert bytes."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from .arrays import middle
from .torch_differences import TorchDifferences

KEY = 1 << 16
"""How many words of eight bytes a digest sums at a time."""
ON_GPU, ON_CPU = (1 << 25, 1 << 20, 1 << 18), (1 << 18, 1 << 13, 1 << 62)


class TorchArrays(TorchDifferences):
    """Works on float64 tensors, on the judged GPU or on the CPU, without numpy.

    Windows of `direct` elements or more, cut from a tape (tape.py: the drawn values of one input),
    are used without a copy. Of inputs of more than `large` elements, only a part changes from one
    timed block to the next; on the CPU, all elements change. `kernels` are those for an NVIDIA card
    and values of `dtypes`, kept in `folder`; None elsewhere, or without a compiler.
    """

    def __init__(self, device: str, dtypes: Iterable[str] = (), folder: str = "") -> None:
        import torch

        super().__init__(torch)
        self.torch, self.NoRoom = torch, torch.OutOfMemoryError
        self.device = device if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0))))
        self.chunk, self.direct, self.large = ON_CPU if self.device == "cpu" else ON_GPU
        self._scratch: Any = None
        self._key: Any = None
        self.kernels = None if self.device == "cpu" or torch.version.hip else \
            self._kernels(dtypes, Path(folder))

    def _kernels(self, dtypes: Iterable[str], folder: Path) -> Any:
        from .card_kernels import CardKernels

        try:
            return CardKernels(self.torch, dtypes, folder)
        except FileNotFoundError:
            return None

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def generator(self, seed: int) -> Any:
        return self.torch.Generator(device=self.device).manual_seed(seed)

    def rounding(self, part: float, seed: int) -> AbstractContextManager[Any]:
        from .rounded_operations import RoundedOperations

        return RoundedOperations(part, seed)

    def normal(self, shape: list[int], generator: Any) -> Any:
        return self.torch.randn(shape, generator=generator, device=self.device)

    def uniform(self, shape: list[int], generator: Any) -> Any:
        return self.torch.rand(shape, generator=generator, device=self.device)

    def sorted_rows(self, value: Any) -> Any:
        return value.sort(dim=-1).values

    def numbers_below(self, count: int) -> Any:
        return self.torch.arange(count, device=self.device)

    def shuffled(self, count: int, generator: Any) -> Any:
        """Return the numbers below a count in random order."""
        return self.torch.randperm(count, generator=generator, device=self.device)

    def share(self, nbytes: int, count: int) -> list[tuple[Any, Any]]:
        """Return new memory for each of `count` other processes, and its bytes as a tensor.

        It is memory of the GPU if that can be shared, else of the host. Raises MemoryError if the
        GPU is full.
        """
        from ..memory.host_memory import HostMemory

        memories: Sequence[Any] = ()
        if self.device != "cpu" and self.torch.version.hip is None:
            from ..memory.device_memory import DeviceMemory

            try:
                self.room(nbytes * count)
                memories = DeviceMemory.create(nbytes, count)
            except (OSError, AttributeError):  # the driver or this torch is too old
                pass
        memories = memories or [HostMemory.create(nbytes) for _ in range(count)]
        return [(memory, memory.tensor()) for memory in memories]

    def room(self, nbytes: int) -> int:
        """Return how much of `nbytes` is free on the GPU.

        If that is not all, memory that torch keeps for later is freed first.
        """
        if self.device == "cpu" or self.torch.cuda.mem_get_info()[0] >= nbytes:
            return nbytes
        self.torch.cuda.empty_cache()
        return min(nbytes, int(self.torch.cuda.mem_get_info()[0]))

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """Place new values and the reference on the CPU."""
        previous, self.device = self.device, "cpu"
        try:
            yield
        finally:
            self.device = previous

    def release(self) -> None:
        """Give back the card's memory that torch keeps for later."""
        if self.device != "cpu":
            self.torch.cuda.empty_cache()

    def forget(self) -> None:
        """Drop the key for digests, and give back all memory that no value needs."""
        self._key = self._scratch = None
        self.release()

    def from_bytes(self, raw: bytes, dtype: str) -> Any:
        values = self.torch.frombuffer(bytearray(raw), dtype=self.dtype(dtype))
        return values.to(self.device)

    def to_native(self, array: Any, dtype: str) -> Any:
        return array.to(self.dtype(dtype)).reshape(-1)

    def moved(self, flat: Any, to: list[int], source: list[int]) -> Any:
        """Return the values with element `source[i]` copied to `to[i]`, all at once."""
        changed = self._countable(flat.clone())
        targets, sources = (self.torch.tensor(at, device=flat.device) for at in (to, source))
        changed[targets] = self._countable(flat)[sources]
        return changed.view(flat.dtype)

    def reversed(self, flat: Any) -> Any:
        return self._countable(flat).flip(0).view(flat.dtype)

    def digest(self, value: Any) -> str:
        """Return a digest of the bytes: on a GPU a linear hash with a secret key."""
        torch = self.torch
        raw = value.contiguous().reshape(-1).view(torch.uint8)
        if raw.device.type == "cpu":
            count = raw.numel()
            return hashlib.sha256((ctypes.c_char * count).from_address(raw.data_ptr())
                                  if count else b"").hexdigest()
        if self._key is None:
            words = torch.frombuffer(bytearray(os.urandom(16 * KEY)), dtype=torch.int64)
            self._key = (words | 1).view(2, KEY).to(raw.device)
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

    def places(self, indices: list[list[int]]) -> Any:
        return self.torch.tensor(indices, device=self.device)

    def windows(self, tape: Any, starts: Any, length: int) -> Any:
        """Return for each start the `length` values from there on, as rows."""
        return self._countable(tape).unfold(0, length, 1)[starts].view(tape.dtype)

    def widen(self, native: Any, shape: list[int], *, wide: bool = True) -> Any:
        """Return values as the reference takes them: float64 or int64, or as is if not `wide`."""
        tensor = native.reshape(shape).to(self.device)
        return tensor.clone() if not wide or native.dtype is self.torch.bool else tensor.to(
            self.torch.float64 if tensor.is_floating_point() else self.torch.int64)

    def host_zeros(self, shape: list[int], dtype: str) -> Any:
        """Return zeros in the host's memory."""
        return self.torch.zeros(shape, dtype=self.dtype(dtype))

    def on_host_as(self, value: Any, dtype: str) -> Any:
        """Return values of a dtype, in a row in the host's memory."""
        return value.to("cpu", self.dtype(dtype)).contiguous()

    def address(self, value: Any) -> int:
        return int(value.data_ptr())

    def from_host(self, value: Any) -> Any:
        return value.to(self.device)

    def noise(self, count: int, seed: int, like: Any) -> Any:
        """Return random factors for values like these.

        A factor is at most 1 and at least 7/8. Eight-bit values have factors in float32.
        """
        noise = self.torch.rand(count, generator=self.generator(seed), device=self.device)
        return noise.div_(-8).add_(1).to(noise.dtype if like.dtype.itemsize == 1 else like.dtype)

    def scaled(self, out: Any, values: Any, factors: Any, low: float | None,
               high: float | None) -> None:
        """Write values, moved by factors towards the middle of their bounds."""
        torch, center = self.torch, middle(low, high)
        if values.dtype.itemsize == 1:
            values = values.float()
        if values.dtype != out.dtype or out.device != values.device:
            out.copy_((values - center) * factors + center)
        elif center:
            torch.add((values - center).mul_(factors), center, out=out)
        else:
            torch.mul(values, factors, out=out)

    def write_windows(self, view: Any, values: Any, factors: Any, places: Any, low: float | None,
                      high: float | None) -> bool:
        """Write rows of values, moved by factors towards the middle of their bounds, in one pass.

        `places` has by row where values and factors begin. Returns False if no kernel can do it.
        """
        if self.kernels is None or not self.kernels.support(view, values, factors):
            return False
        self.kernels.write_windows(view, values, factors, places, middle(low, high))
        return True

    def rotated(self, out: Any, values: Any, noise: Any, steps: Any, first: int, end: int) -> None:
        """Write integers rotated within their bounds by noise, if any, and by their row's step."""
        values = values.long().add_(steps - first)
        values = values if noise is None else values.add_(noise)
        out.copy_((values % (end - first)).add_(first))

    def empty(self, count: int, like: Any) -> Any:
        return self.torch.empty(count, dtype=like.dtype, device=like.device)

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
        if self._scratch is None:
            self._scratch = self.torch.empty(2 * nbytes, dtype=self.torch.uint8, device=self.device)
        self._scratch.zero_()

    def fetched(self, vectors: list[Any]) -> list[list[float]]:
        """Wait for all work and return the contents of vectors, in one transfer."""
        every = iter(self.torch.cat(vectors).tolist())
        return [list(islice(every, vector.shape[0])) for vector in vectors]
