"""A program without a network reaches its provider, and nothing else, through real sockets."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.workers.model.provider_forwarder import (
    MOST_TUNNELS,
    ProviderForwarder,
    address_of,
)
from harness.errors import InputError
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from tests.support.paths import ROOT
from tests.support.programs.tcp_listener import Listener, upper

HEAD = f"""
import socket, sys, json
plain_socket = socket.socket
sys.path.append({str(ROOT)!r})
from engine.workers.model import provider_tunnel
link = int(sys.argv[1])
provider_tunnel.install(link)

def tried(attempt, *args):
    try:
        return attempt(*args)
    except OSError as error:
        return f"{{type(error).__name__}}: {{error}}"

def echo(host, port):
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(b"hello")
        sock.shutdown(socket.SHUT_WR)
        return sock.makefile("rb").read().decode()
"""


def run(folder: Path, body: str, *args: object, api_base: str, wall_s: float = 60.0) -> list[str]:
    """Run a program confined like the model's; return the texts that it prints as JSON."""
    with ProviderForwarder(api_base) as provider:
        outcome = guard.run(
            [sys.executable, "-I", "-c", f"{HEAD}\n{body}", str(provider.link), *map(str, args)],
            cwd=folder, env=guard.clean_env(), limits=Limits(wall_s=wall_s),
            pass_fds=[provider.link], confine=Confine(writable=(str(folder),), cards=False))
    assert outcome.ok, outcome.stderr.decode()
    said: list[str] = json.loads(outcome.stdout)
    return said


def test_program_without_a_network_reaches_the_provider_only(
        tmp_path: Path, listen: Callable[..., Listener]) -> None:
    provider, other = listen(), listen()
    own, refused, direct, local = run(tmp_path, """
port, other = sys.argv[2:]
print(json.dumps([
    tried(echo, "127.0.0.1", port), tried(echo, "127.0.0.1", other),
    tried(plain_socket().connect, ("127.0.0.1", int(other))),
    tried(socket.socket(socket.AF_UNIX).connect, "/run/docker.sock")]))
""", provider.port, other.port, api_base=f"http://127.0.0.1:{provider.port}/v1")
    assert own == "HELLO"
    assert refused == f"ConnectionRefusedError: 127.0.0.1:{other.port} is not the provider's " \
                      f"address, 127.0.0.1:{provider.port}"
    if not guard.confinement_problem():
        assert "Error" in direct and "Error" in local
        assert (provider.count, other.count) == (1, 0)


def test_first_address_is_the_only_one_allowed_without_api_base(
        tmp_path: Path, listen: Callable[..., Listener]) -> None:
    provider, other = listen(), listen()
    first, second, again = run(tmp_path, """
port, other = sys.argv[2:]
print(json.dumps([tried(echo, "LocalHost", port), tried(echo, "127.0.0.1", other),
                  tried(echo, "localhost", port)]))
""", provider.port, other.port, api_base="")
    assert (first, again) == ("HELLO", "HELLO") and "is not the provider's address" in second
    assert (provider.count, other.count) == (2, 0)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_passes_the_forwarder(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate,
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def answer(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as secured:
            secured.recv(1000)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")

    provider = listen(answer)
    assert run(tmp_path, """
import http.client, ssl
port, certificate = sys.argv[2:]
connection = http.client.HTTPSConnection(
    "localhost", int(port), timeout=20, context=ssl.create_default_context(cafile=certificate))
connection.request("GET", "/")
print(json.dumps([connection.getresponse().read().decode()]))
""", provider.port, certificate, api_base=f"https://localhost:{provider.port}") == ["secret"]


def test_three_mib_arrive_in_both_directions(
        tmp_path: Path, listen: Callable[..., Listener]) -> None:
    size = 3 << 20

    def answer(sock: socket.socket) -> None:
        left = size
        while left:
            left -= len(sock.recv(min(left, 1 << 16)))
        sock.sendall(b"x" * size)

    provider = listen(answer)
    assert run(tmp_path, """
port, size = sys.argv[2:]
sock = socket.create_connection(("127.0.0.1", int(port)), 20)
sock.sendall(b"y" * int(size))
print(json.dumps([str(len(sock.makefile("rb").read()))]))
""", provider.port, size, api_base=f"http://127.0.0.1:{provider.port}") == [str(size)]


def test_address_that_cannot_be_reached_is_named_with_the_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    for base, words in ((f"http://127.0.0.1:{port}", "Connection refused"),
                        ("http://no-such-host.invalid:1", "cannot reach no-such-host.invalid:1: ")):
        host, _, own = base.removeprefix("http://").partition(":")
        assert words in run(tmp_path, "print(json.dumps([tried(echo, *sys.argv[2:])]))", host, own,
                            api_base=base)[0]


@pytest.mark.parametrize(("setting", "told"), [
    ("http://user:p%40ss@{proxy}", "HELLO"), ("{proxy}", "HELLO"),
    ("http://{refuses}", "the environment's proxy answers HTTP/1.1 403 Forbidden"),
    ("http://{other}", "does not answer in HTTP"), ("socks5://{proxy}", "has the scheme socks5")])
def test_proxy_of_the_environment_is_used_or_its_failure_stated_in_one_line(
        tmp_path: Path, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch,
        setting: str, told: str) -> None:
    asked: list[bytes] = []

    def proxy(sock: socket.socket) -> None:
        asked.append(sock.recv(2000))
        sock.sendall(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n")
        upper(sock)

    addresses = {name: f"127.0.0.1:{listen(answer).port}" for name, answer in (
        ("proxy", proxy), ("other", lambda sock: sock.recv(2000)), ("refuses", lambda sock: (
            sock.recv(2000), sock.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n"))))}
    monkeypatch.setenv("https_proxy", setting.format(**addresses))
    monkeypatch.setenv("no_proxy", "")
    said = run(tmp_path, "print(json.dumps([tried(echo, 'provider.invalid', 443)]))",
               api_base="https://provider.invalid/v1")[0]
    assert told in said
    if told == "HELLO":
        assert asked[0].startswith(b"CONNECT provider.invalid:443 HTTP/1.1\r\n")
        assert (b"Proxy-Authorization: Basic dXNlcjpwQHNz" in asked[0]) == ("user" in setting)


def test_forged_requests_do_no_harm_and_open_connections_are_limited(
        tmp_path: Path, listen: Callable[..., Listener]) -> None:
    held = threading.Event()

    def answer(sock: socket.socket) -> None:
        upper(sock)
        held.wait(60)

    provider = listen(answer)
    said = run(tmp_path, f"""
import os
raw, port = plain_socket(fileno=os.dup(link)), int(sys.argv[2])
for data in (b"", b"x" * 900, b"{{}}", b'{{"host": "a", "port": 0}}', b'{{"host": "", "port": 1}}',
             b'{{"host": "\\xff", "port": 1}}', b"[" * 1000):
    for make in (lambda: socket.socketpair()[1].detach(),
                 lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[1].detach(),
                 lambda: os.open("/dev/zero", os.O_RDONLY), lambda: os.pipe()[1]):
        fd = make()
        socket.send_fds(raw, [data or b" "], [fd, fd, fd])
        os.close(fd)
    raw.send(data or b" ")
held = [socket.create_connection(("127.0.0.1", port), 20) for _ in range({MOST_TUNNELS})]
many = tried(socket.create_connection, ("127.0.0.1", port), 20)
held[0].sendall(b"hello")
print(json.dumps([many, held[0].recv(5).decode()]))
""", provider.port, api_base=f"http://127.0.0.1:{provider.port}")
    held.set()
    assert f"more than {MOST_TUNNELS} connections" in said[0] and said[1] == "HELLO"


def test_end_of_an_attempt_ends_a_silent_connection(listen: Callable[..., Listener]) -> None:
    silent = listen(lambda sock: sock.recv(9) and threading.Event().wait(30) and None)
    near, far = socket.socketpair()
    with ProviderForwarder(f"http://127.0.0.1:{silent.port}") as provider:
        link = socket.socket(fileno=socket.dup(provider.link))
        socket.send_fds(link, [json.dumps({"host": "127.0.0.1", "port": silent.port}).encode()],
                        [far.fileno()])
        far.close()
        assert near.recv(1) == b"\n"
        near.sendall(b"hello")
        began = time.monotonic()
    assert near.recv(1) == b"" and time.monotonic() - began < 5.0


@pytest.mark.parametrize("text", ["provider", "ftp://host", "http://", "http://host:99999",
                                  "http://[::1"])
def test_api_base_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an address"):
        address_of(text)
    assert str(address_of("https://Host/v1")) == "host:443"
    assert str(address_of("http://[::1]:8000")) == "[::1]:8000"
