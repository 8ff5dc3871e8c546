"""Receives sockets that an untrusted process passes with a message, and nothing else."""

from __future__ import annotations

import os
import socket


def receive(sock: socket.socket, limit: int) -> tuple[bytes, list[socket.socket]]:
    """Return the next message, at most `limit` bytes of it, and the local streams passed with it.

    Whatever else was passed is closed: a file, a pipe, a socket of another kind.
    """
    data, descriptors, _, _ = socket.recv_fds(sock, limit, 1, socket.MSG_CMSG_CLOEXEC)
    return data, [stream for fd in descriptors if (stream := _stream_of(fd)) is not None]


def _stream_of(descriptor: int) -> socket.socket | None:
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:  # not a socket
        os.close(descriptor)
        return None
    if (sock.family, sock.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
        return sock
    sock.close()
    return None
