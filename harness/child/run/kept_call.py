"""A call whose buffers are used again, to see what a kernel does in further calls on them."""

from __future__ import annotations

from typing import Any

import torch

from .load_python import POISON, Call


class KeptCall:
    """A kernel, and the arguments and buffers of one of its calls, whose outputs were right."""

    def __init__(self, kernel: Any, tensors: list[dict[str, Any]], call: Call) -> None:
        self.kernel, self.tensors, self.buffers = kernel, tensors, call

    def remember(self) -> None:
        """Keep the present contents of in-place arguments, for `renew`."""
        self._in_place = [None if buffer is None or buffer.role != "inout" else buffer.raw.clone()
                          for buffer in self.buffers.buffers]

    def renew(self) -> None:
        """Prepare the buffers for another call: poison outputs, restore in-place arguments."""
        self.buffers.poison()
        for buffer, before in zip(self.buffers.buffers, self._in_place, strict=True):
            if buffer is not None and before is not None:
                buffer.raw.copy_(before)

    def fresh(self) -> Call:
        """Return a call on new memory with the same contents, and poisoned outputs."""
        end = max(tensor["offset"] + tensor["nbytes"] for tensor in self.tensors
                  if tensor["role"] != "scalar")
        like = next(buffer for buffer in self.buffers.buffers if buffer is not None)
        slot = torch.full((end,), POISON, dtype=torch.uint8, device=like.raw.device)
        call: Call = self.kernel.arguments(self.tensors, slot)
        for old, new in zip(self.buffers.buffers, call.buffers, strict=True):
            if old is not None and new is not None and not new.output:
                new.raw.copy_(old.raw)
        return call
