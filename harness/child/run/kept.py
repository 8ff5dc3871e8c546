"""Buffers of one case that outlast their call, to see what a kernel remembers and what it forgets.

Called again, called with other contents at the same addresses, and looked at once more later.
"""

from __future__ import annotations

import time
from typing import Any


class KeptBuffers:
    def __init__(self, kernel: Any, tensors: list[dict[str, Any]]) -> None:
        self.kernel, self.tensors = kernel, tensors
        self.buffers = kernel.buffers(tensors)
        self.outputs: Any = None

    def call(self, *, outputs_only: bool = True) -> dict[str, Any]:
        """Call the kernel on fresh outputs and write them; the inputs too if it is wanted."""
        self.kernel.renew(self.buffers)
        self.outputs = self.kernel.call(self.buffers)
        return self._written(outputs_only)

    def swap(self, moves: dict[str, Any]) -> dict[str, Any]:
        """Change elements of the inputs where they lie, and call."""
        self.kernel.move(self.buffers, [tensor["name"] for tensor in self.tensors], moves)
        return self.call()

    def reread(self, wait_s: float, elsewhere: bool) -> dict[str, Any]:
        """Write the last call's outputs once more, after another call elsewhere or a wait."""
        if elsewhere:
            others = self.kernel.buffers(self.tensors)
            self.kernel.reverse(others)
            self.kernel.call(others)
        time.sleep(wait_s)
        return self._written(True)

    def _written(self, outputs_only: bool) -> dict[str, Any]:
        return {"outputs": self.kernel.write(self.buffers, self.outputs, self.tensors,
                                             outputs_only)}
