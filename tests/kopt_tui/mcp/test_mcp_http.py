"""`kopt mcp --http` answers only who has its token, and only this machine."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import kopt

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.skipif(find_spec("mcp") is None,
                                reason="the extra mcp is not installed")


@contextmanager
def http_server(workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield the address and the token of a server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kopt_tui", "mcp", "--http", "--port", "0", "--workspace",
         str(workspace)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "token in" in line
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        url, path = f"http://127.0.0.1:{port}/mcp", workspace / "mcp-token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        campaigns.until(lambda: answers(port), 60)
        yield url, path.read_text().strip()
    finally:
        process.terminate()
        process.wait(60)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def code_of(url: str, **headers: str) -> int:
    request = urllib.request.Request(url, data=json.dumps({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}}).encode(), headers={
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_http_needs_the_token_and_a_loopback_host(tmp_path: Path) -> None:
    with http_server(tmp_path / "w") as (url, token):
        assert code_of(url) == 401
        assert code_of(url, Authorization=f"bearer {token}") == 200
        assert (tmp_path / "w" / ".gitignore").read_text() == "*\n"
        assert code_of(url, Authorization="Bearer wrong") == 401
        assert code_of(url, Authorization=f"Bearer {token}") == 200
        assert code_of(url, Authorization=f"Bearer {token}", Host="evil.example") in (403, 421)
        assert code_of(url, Authorization=f"Bearer {token}", Origin="https://evil.example") == 403
        assert code_of(url, Authorization=f"Bearer {token}", Connection="Upgrade",
                       Upgrade="websocket") in (200, 403)
        port = url.split(":")[2].split("/")[0]
        second = kopt("mcp", "--http", "--port", port, "--workspace", str(tmp_path / "w"))
        assert second.returncode == 2 and f"port {port} cannot be used" in second.stderr
        assert (tmp_path / "w" / "mcp-token").read_text().strip() == token
