"""Servers for the tests of connections to providers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from tests.support.programs.tcp_listener import Listener, upper


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    opened: list[Listener] = []

    def start(answer: Callable[[socket.socket], None] = upper) -> Listener:
        opened.append(Listener(answer))
        return opened[-1]

    yield start
    for listener in opened:
        listener.close()
