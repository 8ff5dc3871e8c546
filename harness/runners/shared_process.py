"""Several kernels in one process, where a card takes no more: each has a seat, a `Peer` of its own.

They share what a process has, so that one could reach the other's clock: a verdict says so.
"""

from __future__ import annotations

from typing import Any

from harness.isolation.device_lock import DeviceLock
from harness.isolation.guard import ProcessOutcome
from harness.isolation.rpc import Peer


class SharedRunner(Peer):
    """One kernel's part of a process that runs several; the last that leaves ends it.

    Questions to seats of one process are answered in the order in which they are sent.
    """

    def __init__(self, bench: SharedProcess, side: str) -> None:
        self._bench, self._side = bench, side
        self._peer = bench.peer
        self.limits = self._peer.limits
        self.elapsed_ns = self.asked_ns = 0

    def send(self, op: str, **fields: object) -> None:
        self._peer.send(op, side=self._side, **fields)
        self.asked_ns = self._peer.asked_ns

    def receive(self) -> dict[str, Any]:
        answer = self._peer.receive()
        self.elapsed_ns = self._peer.elapsed_ns
        return answer

    def pause(self) -> None:
        raise NotImplementedError("a seat cannot be stopped alone")

    resume = pause

    def hold(self, lock: DeviceLock) -> None:
        self._peer.hold(lock)

    @property
    def side(self) -> str:
        """Its name in the process."""
        return self._side

    def vacate(self) -> None:
        """Leave for good, while others stay: what it holds is freed. Raises PeerDied."""
        try:
            self.ask("leave")
        finally:
            if self._bench.leave(self):
                self._peer.kill()

    def kill(self) -> None:
        """Leave; ends the process once nobody is left in it, without waiting."""
        if self._bench.leave(self):
            self._peer.kill()

    def close(self) -> ProcessOutcome:
        """Leave; the last one waits for the end of the process."""
        self._bench.leave(self)
        return ProcessOutcome(ended="exit", returncode=0) if self._bench.taken else \
            self._peer.close()


class SharedProcess:
    """The seats of one process."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.taken: list[SharedRunner] = []
        self._count = 0

    def seat(self, name: str) -> SharedRunner:
        """Return a new seat for a kernel."""
        self._count += 1
        self.taken.append(SharedRunner(self, f"{name}-{self._count}"))
        return self.taken[-1]

    def leave(self, seat: SharedRunner) -> bool:
        """Take a seat away; tell whether it was the last."""
        if seat in self.taken:
            self.taken.remove(seat)
        return not self.taken
