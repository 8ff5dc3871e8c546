"""Connects the program that asks a model to its provider, and to nothing else.

That program has no network. It sends one end of a pair of sockets for each connection (see
`provider_tunnel`); threads of the engine copy bytes between it and the one address that is allowed.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import logging
import socket
import threading
from typing import Annotated
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from msgspec import Meta

from harness.errors import InputError
from harness.formats.text import plain
from harness.isolation import guard, passed_streams

MOST_TUNNELS = 8
CONNECT_S = 30.0
REQUEST_BYTES, HEADER_BYTES = 1024, 8192
HTTPS = 443

log = logging.getLogger("kopt.engine")


class ProviderAddress(msgspec.Struct, frozen=True):
    """Where a provider listens."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65535)]

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(api_base: str) -> ProviderAddress | None:
    """Return the address in `pool.agent.api_base`, None if it is empty. Raises InputError."""
    if not api_base:
        return None
    try:
        parts = urlsplit(api_base)
        port = parts.port or {"http": 80, "https": HTTPS}[parts.scheme]
    except (ValueError, KeyError):
        parts, port = None, 0
    if parts is None or not parts.hostname:
        raise InputError(f"pool.agent.api_base: {api_base!r} is not an address",
                         fix="write https://HOST or http://HOST:PORT, with a path if necessary")
    return ProviderAddress(parts.hostname, port)


def unrestricted() -> str:
    """Return why the program may connect anywhere on this machine, "" if it may not."""
    problem = guard.confinement_problem()
    return f"a model's program may connect to any address on this machine: {problem}" \
        if problem else ""


class ProviderForwarder:
    """A context manager; its `link` is the descriptor that the program gets.

    Without an `api_base` the first address that the program asks for is the provider's: LiteLLM
    derives it from the model's name. From then on it is the only one.
    """

    def __init__(self, api_base: str) -> None:
        self._allowed = address_of(api_base)
        self._scheme = urlsplit(api_base).scheme
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = self._theirs.fileno()
        self._free = threading.Semaphore(MOST_TUNNELS)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_closed = self._has_refused = False
        self._thread = threading.Thread(target=self._serve, name="provider", daemon=True)

    def __enter__(self) -> ProviderForwarder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            for sock in (self._ours, *self._open):
                _end(sock)
        self._thread.join()
        self._ours.close()
        self._theirs.close()

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
        if not self._free.acquire(blocking=False):
            return _refuse(near, f"more than {MOST_TUNNELS} connections at a time")
        threading.Thread(target=self._tunnel, args=(near, asked), name="provider",
                         daemon=True).start()

    def _tunnel(self, near: socket.socket, address: ProviderAddress) -> None:
        try:
            try:
                far = connected(address, self._scheme)
            except (OSError, InputError, ValueError) as error:
                return _refuse(near, f"cannot reach {address}: "
                               f"{getattr(error, 'strerror', None) or error}")
            with near, far:
                with self._lock:
                    if self._is_closed:
                        return
                    self._open |= {near, far}
                with contextlib.suppress(OSError):
                    near.sendall(b"\n")
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
        raise InputError(f"the proxy of the environment is one of {parts.scheme}, and only http:// "
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
                raise InputError("the proxy of the environment gives no answer of HTTP")
            answer += byte
        status = answer.split(b"\r\n", 1)[0].decode(errors="replace")
        if status.split(maxsplit=2)[1:2] != ["200"]:
            raise InputError(f"the proxy of the environment answers {plain(status, 100)}")
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
        _end(source)
        _end(sink)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _refuse(near: socket.socket, problem: str) -> None:
    with near, contextlib.suppress(OSError):
        near.sendall(plain(" ".join(problem.split()), 300).encode() + b"\n")
