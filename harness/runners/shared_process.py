"""Several kernels in one process, for a card that accepts only one process.

One kernel could then tamper with the timing of the other; such a verdict mentions this risk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import ProcessOutcome
from harness.isolation.rpc import Peer


class SharedRunner(Peer):
    """One of several kernels in one process, which ends when the last of them leaves.

    The process answers requests in the order in which they are sent.
    """

    def __init__(self, shared: SharedProcess, side: str) -> None:
        self._shared, self.side = shared, side
        self.process = self._peer = shared.peer
        self.limits = self._peer.limits
        self.elapsed_ns = self.asked_ns = 0
        self.key, self.stamps = b"", None  # no key: a kernel loaded earlier could read it

    def send(self, op: str, descriptors: Sequence[int] = (), /, **fields: object) -> None:
        self._peer.send(op, descriptors, side=self.side, **fields)
        self.asked_ns = self._peer.asked_ns

    def post(self, data: bytes) -> None:
        self._peer.post(data)

    def receive(self) -> dict[str, Any]:
        self._peer.asked_ns = self.asked_ns
        answer = self._peer.receive()
        self.elapsed_ns = self._peer.elapsed_ns
        return answer

    def pause(self, *, stops_itself: bool = False) -> None:
        raise NotImplementedError("one runner of a shared process cannot be stopped alone")

    def resume(self) -> None:
        self.pause()

    def hold(self, lock: DeviceLock) -> None:
        self._peer.hold(lock)

    def vacate(self) -> None:
        """Have the process free this kernel's memory, and leave. Raises PeerDied."""
        try:
            self.ask("leave")
        finally:
            self.kill()

    def kill(self) -> None:
        """Leave; if no runner is left, end the process without waiting for its end."""
        if self._shared.leave(self):
            self._peer.kill()

    def close(self) -> ProcessOutcome:
        """Leave; if no runner is left, wait for the end of the process."""
        self._shared.leave(self)
        return ProcessOutcome(ended="exit", returncode=0) if self._shared.runners else \
            self._peer.close()


class SharedProcess:
    """A process and the runners in it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.runners: list[SharedRunner] = []
        self._count = 0

    def join(self, name: str) -> SharedRunner:
        """Return a new runner for a kernel."""
        self._count += 1
        self.runners.append(SharedRunner(self, f"{name}-{self._count}"))
        return self.runners[-1]

    def leave(self, runner: SharedRunner) -> bool:
        """Remove a runner; return whether none is left."""
        if runner in self.runners:
            self.runners.remove(runner)
        return not self.runners
