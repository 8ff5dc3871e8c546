"""Connects the program that asks a model to its provider, and to nothing else.

That program has no network. It sends one end of a pair of sockets for each connection (see
`provider_tunnel`); threads of the engine copy bytes between it and the one address that is allowed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
from urllib.parse import urlsplit

import msgspec

from engine.coding_agents import provider_address
from engine.coding_agents.provider_address import ProviderAddress
from engine.workers.model.provider_connection import TunnelServer
from engine.workers.slot import passed_streams
from harness.errors import InputError
from harness.formats.text import plain
from harness.isolation import guard

MOST_TUNNELS = 8
REQUEST_BYTES = 1024

log = logging.getLogger("kopt.engine")


def address_of(api_base: str) -> ProviderAddress | None:
    """Return the address in `pool.agent.api_base`, None if it is empty. Raises InputError."""
    if not api_base:
        return None
    address = provider_address.parse(api_base) if "://" in api_base else None
    if address is None:
        raise InputError(f"pool.agent.api_base: {api_base!r} is not an address",
                         fix="write https://HOST or http://HOST:PORT, with a path if necessary")
    return address


def unrestricted() -> str:
    """Return why a model's program may connect anywhere on this machine, "" if it may not."""
    problem = guard.confinement_problem()
    return f"a model's program may connect to any address on this machine: {problem}" \
        if problem else ""


class ProviderForwarder(TunnelServer):
    """A context manager; its `link` is the descriptor that the program gets.

    Without an `api_base` the first address that the program asks for is the provider's: LiteLLM
    derives it from the model's name. From then on only this address is allowed.
    """

    def __init__(self, api_base: str) -> None:
        self._allowed = address_of(api_base)
        self._scheme = urlsplit(api_base).scheme
        super().__init__(MOST_TUNNELS)
        self.link = self._theirs.fileno()
        self._has_refused = False

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, streams = passed_streams.receive(self._ours, REQUEST_BYTES)
                if not data and not streams:
                    return
                for near in streams:
                    self._begin(data, near)

    def _begin(self, data: bytes, near: socket.socket) -> None:
        """Start the thread of a connection, or say in one line why there is none."""
        try:
            asked = msgspec.json.decode(data, type=ProviderAddress)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _refuse(near, "not an address")
        asked = ProviderAddress(asked.host.lower(), asked.port)
        self._allowed = self._allowed or asked
        if asked != self._allowed:
            problem = f"{asked} is not the provider's address, {self._allowed}"
            if not self._has_refused:
                log.warning("the model's program was refused a connection: %s", plain(problem))
            self._has_refused = True
            return _refuse(near, problem)
        self._connect(near, asked, self._scheme, functools.partial(_answer, near))


def _answer(near: socket.socket, problem: str) -> None:
    """Send why a connection is refused, in one line; an empty line if it is made."""
    with contextlib.suppress(OSError):
        near.sendall(plain(" ".join(problem.split()), 300).encode() + b"\n")


def _refuse(near: socket.socket, problem: str) -> None:
    with near:
        _answer(near, problem)
