"""Connections to providers, directly or through a proxy, for programs that have no network."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from engine.coding_agents.provider_address import HTTPS, ProviderAddress
from harness.errors import InputError
from harness.formats.text import plain

CONNECT_S = 30.0
HEADER_BYTES = 8192


class TunnelServer(ABC):
    """Connects a program at the other end of a pair of sockets to providers; a context manager.

    A thread serves the program's requests, and two more copy the bytes of each connection.
    """

    def __init__(self, most: int) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._serve, name="provider", daemon=True)
        self._most, self._free = most, threading.Semaphore(most)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_closed = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread and all connections, also those that are being made."""
        end(self._ours)
        self._thread.join()
        with self._lock:
            self._is_closed = True
            for sock in self._open:
                end(sock)
        self._ours.close()
        self._theirs.close()

    @abstractmethod
    def _serve(self) -> None:
        """Serve until the pair of sockets ends."""

    def _connect(self, near: socket.socket, address: ProviderAddress, scheme: str,
                 report: Callable[[str], None]) -> None:
        """Connect a program's socket to an address; `report` gets "", or why it failed."""
        if self._free.acquire(blocking=False):
            threading.Thread(target=self._run, args=(near, address, scheme, report),
                             name="provider", daemon=True).start()
            return
        with near:
            report(f"more than {self._most} connections at a time")

    def _run(self, near: socket.socket, address: ProviderAddress, scheme: str,
             report: Callable[[str], None]) -> None:
        try:
            try:
                far = connected(address, scheme)
            except (OSError, InputError, ValueError) as error:
                with near:
                    return report(f"cannot reach {address}: "
                                  f"{getattr(error, 'strerror', None) or error}")
            with near, far:
                with self._lock:
                    if self._is_closed:
                        return
                    self._open |= {near, far}
                report("")
                back = threading.Thread(target=_copy, args=(far, near), name="provider",
                                        daemon=True)
                back.start()
                _copy(near, far)
                back.join()
                with self._lock:
                    self._open -= {near, far}
        finally:
            self._free.release()


def connected(address: ProviderAddress, scheme: str = "") -> socket.socket:
    """Connect to an address, through the proxy of the environment if it names one for the scheme.

    Raises OSError, ValueError, or InputError for a proxy that refuses or is not supported.
    """
    scheme = scheme or ("https" if address.port == HTTPS else "http")
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or _is_loopback(address.host) or proxy_bypass(address.host):
        sock = socket.create_connection((address.host, address.port), CONNECT_S)
    else:
        sock = _through(proxy, address)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _through(proxy: str, address: ProviderAddress) -> socket.socket:
    """Ask a proxy for a connection."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname:
        raise InputError(f"the environment's proxy has the scheme {parts.scheme}; only http:// "
                         "is supported", fix="name the provider's host in NO_PROXY")
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login).decode()}")
    sock = socket.create_connection((parts.hostname, parts.port or 80), CONNECT_S)
    try:
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            if len(answer) > HEADER_BYTES or not (byte := sock.recv(1)):
                raise InputError("the environment's proxy does not answer in HTTP")
            answer += byte
        status = answer.split(b"\r\n", 1)[0].decode(errors="replace")
        if status.split(maxsplit=2)[1:2] != ["200"]:
            raise InputError(f"the environment's proxy answers {plain(status, 100)}")
    except BaseException:
        sock.close()
        raise
    return sock


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until the source sends no more; a fault ends both sides."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        end(source)
        end(sink)


def end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
