"""Forwards an output of a guarded program to its owner. Standard library only."""

from __future__ import annotations

import os


class ForwardedOutput:
    """One forwarded output of the program: bounded, never blocking the supervisor."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.seen = 0
        self.pending = bytearray()
        self.open = True
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def read(self, room: int) -> None:
        try:
            data = os.read(self.source, 65536)
        except BlockingIOError:
            return
        if not data:
            self.open = False
            return
        self.pending += data[: max(0, room - self.seen)]
        self.seen += len(data)

    def write(self) -> None:
        try:
            del self.pending[: os.write(self.sink, self.pending[:65536])]
        except BlockingIOError:
            return
        except OSError:
            self.pending.clear()

    def forward_all(self, room: int) -> None:
        """Read what the program has printed, and write as much as the owner can take now."""
        while self.open and self.seen <= room:
            before = self.seen
            self.read(room)
            if self.seen == before:
                break
        if self.pending:
            self.write()

    def forget(self) -> None:
        """Reset the count of bytes seen, and drop output that has not been written."""
        self.seen = 0
        self.pending.clear()
