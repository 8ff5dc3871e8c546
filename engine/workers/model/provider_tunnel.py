"""Routes the connections of this process through the engine: it has no network of its own.

Runs in the program that asks a model. A connection is one end of a pair of sockets; the engine,
which gets the other end, connects it to the provider and refuses every other address. TLS is spoken
in this process, so the engine sees neither key nor text. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

MOST_BYTES = 400
"""Bytes of the engine's one line about a connection."""


def install(descriptor: int) -> None:
    """Route all later connections through the engine at the other end of a descriptor."""
    link = socket.socket(fileno=descriptor)

    class TunnelledSocket(socket.socket):
        """A TCP socket that the engine connects."""

        def connect(self, address: Any) -> None:
            if not isinstance(address, tuple):  # a path, not a network address
                return super().connect(address)
            timeout = self.gettimeout()
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    asked = json.dumps({"host": address[0], "port": address[1]})
                    socket.send_fds(link, [asked.encode()], [theirs.fileno()])
                ours.settimeout(timeout)
                if problem := _line(ours):
                    raise ConnectionRefusedError(problem)
                os.dup2(ours.fileno(), self.fileno(), inheritable=False)
            self.settimeout(timeout)

        def setsockopt(self, level: int, *args: Any) -> None:
            if level == socket.SOL_SOCKET:  # the pair has no options of TCP
                super().setsockopt(level, *args)

    def getaddrinfo(host: Any, port: Any, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        """Leave name resolution to the engine."""
        name = host.decode() if isinstance(host, bytes) else host
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (name, port))]

    socket.socket = TunnelledSocket  # type: ignore[misc]
    socket.getaddrinfo = getaddrinfo


def _line(sock: socket.socket) -> str:
    """Return the engine's line about a connection, "" if it is made."""
    data = b""
    while not data.endswith(b"\n") and len(data) < MOST_BYTES:
        if not (byte := sock.recv(1)):
            return "the engine has ended"
        data += byte
    return data.decode(errors="replace").strip()
