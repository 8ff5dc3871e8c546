"""A command in its own network namespace reaches its providers by name, and nothing else."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.coding_agents.provider_address import ProviderAddress
from engine.manifest.pool_schema import CliSpec
from engine.workers.cli import CliWorker
from engine.workers.model.provider_routes import ProviderRoutes
from engine.workers.protocol import Report
from harness.errors import InputError
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits, ProcessOutcome
from tests.support.agents import worker_bench
from tests.support.engines import campaigns
from tests.support.programs.tcp_listener import Listener, upper

HEAD = """
import json, os, socket, sys

def tried(attempt, *args):
    try:
        return attempt(*args)
    except OSError as error:
        return f"{type(error).__name__}: {error}"

def echo(host, port):
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.sendall(b"hello")
        sock.shutdown(socket.SHUT_WR)
        return sock.makefile("rb").read().decode()
"""
needs_namespaces = pytest.mark.skipif(bool(guard.confinement_problem()),
                                      reason=guard.confinement_problem())


def run(folder: Path, body: str, providers: list[ProviderAddress], *args: object,
        wall_s: float = 60.0) -> ProcessOutcome:
    """Run a program that can reach only these providers."""
    (room := folder / "room").mkdir()
    with ProviderRoutes(providers, folder) as routes:
        return guard.run(
            [sys.executable, "-I", "-c", f"{HEAD}\n{body}", *map(str, args)], cwd=room,
            limits=Limits(wall_s=wall_s), pass_fds=(routes.reach.link,),
            confine=Confine(writable=(str(room),), reach=routes.reach, required=True))


@needs_namespaces
def test_program_reaches_named_hosts_at_their_ports_and_nothing_else(
        tmp_path: Path, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def proxy(sock: socket.socket) -> None:
        asked.append(sock.recv(2000).split(b"\r\n")[0])
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        upper(sock)

    local, other, outer = listen(), listen(), listen(proxy)
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", f"127.0.0.1:{outer.port}")
    monkeypatch.setenv("no_proxy", "")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "unix"))
        unix.listen()
        outcome = run(tmp_path, """
port, other, unix = sys.argv[1:]
def serve_oneself():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            return "connected"
print(json.dumps([
    [tried(echo, host, at) for host, at in (
        ("127.0.0.1", port), ("localhost", port), ("provider.invalid", 443),
        ("second.invalid", 443), ("10.9.8.7", 80))],
    tried(serve_oneself),
    [tried(echo, host, at) for host, at in (
        ("127.0.0.1", other), ("provider.invalid", 80), ("third.invalid", 443),
        ("10.9.8.7", 443), ("8.8.8.8", 53), ("::1", other))],
    [tried(lambda: socket.socket(socket.AF_UNIX).connect(unix)),
     tried(lambda: socket.socket(socket.AF_VSOCK)),
     tried(lambda: open("/etc/hosts", "a"))],
    [len(os.listdir("/proc/self/fd")), len(socket.socketpair())]]))
""", [ProviderAddress("127.0.0.1", local.port), ProviderAddress("localhost", local.port),
      ProviderAddress("provider.invalid", 443), ProviderAddress("second.invalid", 443),
      ProviderAddress("10.9.8.7", 80)], local.port, other.port, tmp_path / "unix")
    assert outcome.ok, outcome.stderr.decode()
    reached, own, refused, sockets, descriptors = json.loads(outcome.stdout)
    assert reached == ["HELLO"] * 5 and own == "connected"
    assert asked == [b"CONNECT provider.invalid:443 HTTP/1.1",
                     b"CONNECT second.invalid:443 HTTP/1.1", b"CONNECT 10.9.8.7:80 HTTP/1.1"]
    assert all("rror: " in said for said in refused) and other.count == 0, refused
    assert [said.partition(":")[0] for said in sockets] == ["PermissionError"] * 2 + ["OSError"]
    assert descriptors == [4, 2]  # the link to the engine is closed


@needs_namespaces
def test_end_of_the_program_ends_its_connections_at_once(
        tmp_path: Path, listen: Callable[..., Listener]) -> None:
    ended, before = threading.Event(), threading.active_count()

    def silent(sock: socket.socket) -> None:
        while sock.recv(100):
            pass
        ended.set()

    server = listen(silent)
    outcome = run(tmp_path, """
import time
open_socks = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(70)]
time.sleep(600)
""", [ProviderAddress("127.0.0.1", server.port)], server.port, wall_s=2.0)
    assert outcome.ended == "timeout" and server.count == 64
    assert ended.wait(10)
    campaigns.until(lambda: threading.active_count() <= before + 1)


@needs_namespaces
def test_provider_that_cannot_be_reached_is_in_the_log_once(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    # an engine that ran in this process has set it to False
    monkeypatch.setattr(logging.getLogger("kopt.engine"), "propagate", True)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    outcome = run(tmp_path, "print(tried(echo, *sys.argv[1:]), tried(echo, *sys.argv[1:]))",
                  [ProviderAddress("127.0.0.1", port)], "127.0.0.1", port)
    assert outcome.ok, outcome.stderr.decode()
    assert [record.getMessage() for record in caplog.records] == [
        f"a command is not connected: cannot reach 127.0.0.1:{port}: Connection refused"]


def test_ipv6_addresses_and_more_than_64_addresses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="::1 is an IPv6 address"):
        ProviderRoutes([ProviderAddress("::1", 80)], tmp_path)
    with pytest.raises(InputError, match="at most 64 addresses"):
        ProviderRoutes([ProviderAddress("127.0.0.1", 1 + n) for n in range(65)], tmp_path)


def run_agent(root: Path, spec: CliSpec) -> Report:
    (root / "worktree").mkdir()
    setup = campaigns.create(root)
    return CliWorker([spec]).work(
        worker_bench.task("cli", option=spec.name),
        worker_bench.bench(setup.target, setup.device, root / "worktree", root / "scratch",
                           baseline="", edit=("scale.c",)), lambda *_: None, threading.Event())


@needs_namespaces
@pytest.mark.parametrize(("fields", "reaches"), [
    ({"template": "qwen"}, "provider"), ({"template": "qwen", "network": True}, "both"),
    ({"network": ("127.0.0.1:{other}",)}, "other"), ({"network": False}, "none"), ({}, "none"),
    ({"network": True}, "both"), ({"env": ("OPENAI_API_KEY", "OPENAI_BASE_URL")}, "provider")])
def test_agent_reaches_its_templates_provider_or_what_the_manifest_allows(
        tmp_path: Path, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch,
        fields: dict[str, object], reaches: str) -> None:
    provider, other = listen(), listen()
    (program := tmp_path / "program.py").write_text(f"""{HEAD}
_, prompt, *ports = sys.argv
said = [tried(echo, "127.0.0.1", port) == "HELLO" for port in ports]
print({{(True, True): "both", (True, False): "provider", (False, True): "other",
       (False, False): "none"}}[tuple(said)], [name for name in os.environ if "PROXY" in name])
""")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-scripted-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{provider.port}/v1")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    network = fields.get("network")
    if isinstance(network, tuple):
        fields = {**fields, "network": tuple(each.format(other=other.port) for each in network)}
    report = run_agent(tmp_path, CliSpec(
        name="coder", command=f"{{python}} {program} {{prompt}} {provider.port} {other.port}",
        **{"env": ("HTTPS_PROXY",), **fields}))  # type: ignore[arg-type]
    assert report.ok, report
    kept = [] if reaches in ("provider", "other") or "env" in fields else ["HTTPS_PROXY"]
    assert (tmp_path / "scratch" / "worker.log").read_text().strip() == f"{reaches} {kept}"


@needs_namespaces
def test_command_that_cannot_be_restricted_does_not_run(tmp_path: Path) -> None:
    report = run_agent(tmp_path, CliSpec(
        name="coder", command="touch ran {prompt}", network=("127.0.0.1:80", "0.0.0.0:80")))
    assert "exited with 127" in report.cut, report
    assert not (tmp_path / "worktree" / "ran").exists()
