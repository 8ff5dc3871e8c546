"""Buffers of one case that outlive a call, to detect state that a kernel keeps between calls.

The kernel is called again, then with new contents at the same addresses, and its outputs are read
again later.
"""

from __future__ import annotations

import time
from typing import Any


class KeptBuffers:
    """A kernel and the buffers of one case."""

    def __init__(self, kernel: Any, tensors: list[dict[str, Any]]) -> None:
        self.kernel, self.tensors = kernel, tensors
        self.buffers = kernel.buffers(tensors)
        self.outputs: Any = None

    def call(self, *, outputs_only: bool = True) -> dict[str, Any]:
        """Call the kernel on poisoned outputs; write these, and the inputs too if asked."""
        self.kernel.renew(self.buffers)
        self.outputs = self.kernel.call(self.buffers)
        return self._written(outputs_only)

    def swap(self, moves: dict[str, Any]) -> dict[str, Any]:
        """Change input elements in place, then call."""
        self.kernel.move(self.buffers, [tensor["name"] for tensor in self.tensors], moves)
        return self.call()

    def reread(self, wait_s: float, elsewhere: bool) -> dict[str, Any]:
        """Write the last call's outputs again, after a wait or a call on other buffers."""
        if elsewhere:
            others = self.kernel.buffers(self.tensors)
            self.kernel.reverse(others)
            self.kernel.call(others)
        time.sleep(wait_s)
        return self._written(True)

    def _written(self, outputs_only: bool) -> dict[str, Any]:
        return {"outputs": self.kernel.write(self.buffers, self.outputs, self.tensors,
                                             outputs_only)}
