"""Reads the times at which the operating system passed on a child's messages."""

from __future__ import annotations

import socket
import struct

SO_TIMESTAMPNS = 35
TIME = struct.Struct("@ll")


class SendTimes:
    """A socket whose messages the operating system stamps with the time when they were sent.

    `theirs` is the child's end. No process waits at the other end, so a message wakes none.
    """

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    @classmethod
    def open(cls) -> SendTimes | None:
        """Return a new socket; None if the operating system stamps no messages."""
        opened = cls()
        opened.theirs.send(b"?")
        if opened.take_ns():
            return opened
        opened.close()
        return None

    def take_ns(self) -> list[int]:
        """Return the times of the messages since the last call, in nanoseconds."""
        times: list[int] = []
        while True:
            try:
                data, stamps, _, _ = self._ours.recvmsg(1, socket.CMSG_SPACE(TIME.size))
            except BlockingIOError:
                return times
            if not data:  # the child closed its end
                return times
            for _, kind, stamp in stamps:
                if kind == SO_TIMESTAMPNS:
                    seconds, ns = TIME.unpack(stamp)
                    times.append(seconds * 1_000_000_000 + ns)

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()
