"""A runner in this process, which maps the oracle's slots for a test to read and write."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from harness.child.memory.host_memory import HostMemory
from harness.isolation.rpc import Peer

Returned = list[dict[str, Any]]


class StubRunner:
    """Answers the requests of a Peer; `kernel` is called with this runner and a slot's number."""

    def __init__(self, kernel: Callable[[StubRunner, int], None] = lambda runner, slot: None, *,
                 returned: Returned | None = None) -> None:
        self._kernel, self._returned = kernel, returned or []
        self._answer: dict[str, Any] = {}
        self.job: dict[str, Any] = {}
        self.requests: list[str] = []

    @property
    def peer(self) -> Peer:
        return cast(Peer, self)

    def send(self, op: str, descriptors: Sequence[int] = (), /, **fields: Any) -> None:
        self.requests.append(op)
        self._answer = {}
        if op == "prepare":
            self._map(descriptors[0], fields)
            self._answer = {"returned": self._returned if fields["call"] else []}
        elif op == "call":
            self._kernel(self, fields["slot"])
            self._answer = {"returned": self._returned}

    def receive(self) -> dict[str, Any]:
        return self._answer

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.send(op, (), **fields)
        return self.receive()

    def run(self, count: int) -> None:
        """Call the kernel on each of the first slots, as a block does."""
        for slot in range(count):
            self._kernel(self, slot)

    def _map(self, descriptor: int, job: dict[str, Any]) -> None:
        import numpy as np

        self.job = job
        self._memory = HostMemory.received([os.dup(descriptor)], job["memory"]["nbytes"])
        size = job["slots"] * job["slot_bytes"]
        self.raw = np.frombuffer(self._memory.map, dtype="uint8")[:size].reshape(
            job["slots"], job["slot_bytes"])
        regions = [tensor for tensor in job["tensors"] if tensor["role"] != "scalar"]
        self._regions = {tensor["name"]: tensor for tensor in [*regions, *job["returned"]]}

    def place_of(self, name: str) -> tuple[int, int]:
        """Return where a tensor begins and ends in a slot."""
        region = self._regions[name]
        return region["offset"], region["offset"] + region["nbytes"]

    def view(self, name: str, slot: int = 0) -> Any:
        """Return a tensor in a slot, flattened; writes to it are writes to the slot."""
        begin, end = self.place_of(name)
        return self.raw[slot, begin:end].view(self._regions[name]["stored"])

    def values(self, name: str, slot: int = 0) -> list[float]:
        return [float(value) for value in self.view(name, slot)]
