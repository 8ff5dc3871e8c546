"""The child's end of its socket: JSON lines, which may carry file descriptors."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .one_line import one_line

MOST_DESCRIPTORS = 32


class Channel:
    """Requests of the owner, one at a time, each followed by its answer."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def requests(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield (request, its file descriptors) until the owner closes the socket."""
        data, descriptors = b"", list[int]()
        while True:
            while b"\n" not in data:
                more, received, _, _ = socket.recv_fds(self._socket, 1 << 16, MOST_DESCRIPTORS)
                descriptors += received
                if not more:
                    return
                data += more
            line, _, data = data.partition(b"\n")
            yield json.loads(line), descriptors
            descriptors = []

    def answer(self, answer: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an answer with descriptors, which are then closed."""
        line = json.dumps(answer).encode() + b"\n"
        if descriptors:
            sent = socket.send_fds(self._socket, [line], list(descriptors))
            line = line[sent:]
            for descriptor in descriptors:
                os.close(descriptor)
        self._socket.sendall(line)


def serve(descriptor: int, work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer requests by `work` until the owner closes the socket; an error is an answer too."""
    channel = Channel(descriptor)
    for job, _ in channel.requests():
        try:
            answer = work(job)
        except BaseException as error:
            answer = {"error": one_line(error), "kind": type(error).__name__}
        channel.answer(answer)
