"""The child's end of its socket: JSON lines, which may carry file descriptors."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from .one_line import one_line

MOST_DESCRIPTORS = 32


def serve(descriptor: int, work: Callable[[dict[str, Any]], dict[str, Any] | None],
          describe: Callable[[BaseException], str] = one_line) -> None:
    """Answer requests by `work` until the owner closes the socket; an error is an answer too.

    The file descriptors that came with a request are its `received`. Those in the `share` of an
    answer go with it, and are then closed. None means that the answer has been sent.
    """
    with socket.socket(fileno=descriptor) as channel:
        channel.set_inheritable(False)
        for job in _requests(channel):
            try:
                answer = work(job)
            except BaseException as error:
                answer = {"error": describe(error), "kind": type(error).__name__}
            if answer is None:
                continue
            share = answer.pop("share", ())
            line = json.dumps(answer).encode() + b"\n"
            if share:
                line = line[socket.send_fds(channel, [line], share):]
                for shared in share:
                    os.close(shared)
            channel.sendall(line)


def _requests(channel: socket.socket) -> Iterator[dict[str, Any]]:
    data, descriptors = b"", list[int]()
    while True:
        while b"\n" not in data:
            more, received, _, _ = socket.recv_fds(channel, 1 << 16, MOST_DESCRIPTORS)
            descriptors += received
            if not more:
                return
            data += more
        line, _, data = data.partition(b"\n")
        yield {**json.loads(line), "received": descriptors}
        descriptors = []
