"""Lets a command in a network namespace of its own reach a few providers by their usual names.

In that namespace each provider's host has an address; the engine accepts connections there and
forwards them to the provider. The command needs no proxy and speaks TLS with the provider itself.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import selectors
import socket
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from engine.coding_agents.provider_address import ProviderAddress
from engine.workers.model.provider_connection import TunnelServer
from harness.errors import InputError
from harness.formats.text import plain
from harness.isolation import confinement
from harness.isolation.confinement import Reach

MOST_TUNNELS = 64
HOSTS = "hosts"

log = logging.getLogger("kopt.engine")


class ProviderRoutes(TunnelServer):
    """Forwards connections until its `with` block ends; `folder` gets a hosts file.

    `reach` is for the process that connects.

    Raises InputError for an IPv6 address, or more addresses than a process may be given.
    """

    def __init__(self, providers: Iterable[ProviderAddress], folder: Path) -> None:
        self._routes: dict[tuple[str, int], ProviderAddress] = {}
        names: dict[str, str] = {}
        for provider in providers:
            inner = names.setdefault(provider.host, _inner_address(provider.host, len(names)))
            self._routes[inner, provider.port] = provider
        if len(self._routes) > confinement.MOST_ADDRESSES:
            raise InputError(f"a command may reach at most {confinement.MOST_ADDRESSES} addresses",
                             where="pool.cli[].network")
        (folder / HOSTS).write_text("".join(f"{address} {name}\n" for name, address in (
            ("localhost", "127.0.0.1"), *names.items())))
        super().__init__(MOST_TUNNELS)
        self.reach = Reach(link=self._theirs.fileno(), addresses=tuple(self._routes),
                           hosts=str(folder / HOSTS))
        self.unreached: set[ProviderAddress] = set()
        """The providers to which a connection has failed."""

    def _serve(self) -> None:
        listeners = confinement.receive_listeners(self._ours, len(self._routes))
        with ExitStack() as stack, selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            for listener, provider in zip(listeners, self._routes.values(), strict=False):
                listener.setblocking(False)
                selector.register(stack.enter_context(listener), selectors.EVENT_READ, provider)
            while listeners:
                for key, _ in selector.select():
                    if key.fileobj is self._ours:
                        return
                    self._accept(key.fileobj, key.data)

    def _accept(self, listener: object, provider: ProviderAddress) -> None:
        assert isinstance(listener, socket.socket)
        with suppress(OSError):  # the command has closed the connection already
            near, _ = listener.accept()
            near.setblocking(True)
            self._connect(near, provider, "", functools.partial(self._report, provider))

    def _report(self, provider: ProviderAddress, problem: str) -> None:
        if problem and provider not in self.unreached:
            self.unreached.add(provider)
            log.warning("a command is not connected: %s", plain(problem))


def _inner_address(host: str, number: int) -> str:
    """Return the IPv4 address that stands for a host in the network of a command."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        if ipaddress.ip_address(host).version == 4:
            return host
    except ValueError:
        return f"127.77.0.{1 + number}"
    raise InputError(f"{host} is an IPv6 address: kopt cannot restrict a command to it",
                     where="pool.cli[].network", fix="name the host, or write network: true")
