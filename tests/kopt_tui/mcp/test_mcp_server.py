"""An outside agent's client talks to a real `kopt mcp`, over both transports."""

from __future__ import annotations

import json
import re
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from harness.errors import InputError
from kopt_tui.main import VERBS
from kopt_tui.mcp import skill
from kopt_tui.mcp.verb_call import VerbCall, VerbFailed
from tests.support import campaigns
from tests.support.command_line import kopt
from tests.support.paths import ROOT

TOOLS = {"propose", "evaluate", "loop", "new", "campaign_status", "submit_candidate", "verdict",
         "events_since", "read_knowledge"}


def parameters(root: Path, workspace: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, cwd=str(root), env={"PYTHONPATH": str(ROOT)},
        args=["-m", "kopt_tui", "mcp", "--workspace", str(workspace)])


def text(result: Any) -> str:
    return "".join(getattr(part, "text", "") for part in result.content)


async def test_client_reads_a_campaign_and_gets_no_further(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path)
    project = Path(setup.manifest.project)
    campaigns.hand_in(setup)
    async with Client(stdio_client(parameters(project, setup.workspace))) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        status = json.loads(text(await client.call_tool("campaign_status", {})))
        assert [row["campaign"]["id"] for row in status["campaigns"]] == [setup.id]
        manifest = str(setup.folder.path / "manifest.yaml")
        outside = await client.call_tool("propose", {"manifest": manifest})
        assert outside.is_error and "outside the folder" in text(outside)
        option = await client.call_tool("verdict", {"candidate": "--help"})
        assert option.is_error and "begins with '-'" in text(option)
        unknown = await client.call_tool("verdict", {"candidate": "nosuchcandidate"})
        assert unknown.is_error and "nosuchcandidate" in text(unknown)
        events = json.loads(text(await client.call_tool("events_since", {"after": 0})))
        assert events["events"] and all("seq" in event for event in events["events"])
        pages = text(await client.call_tool("read_knowledge", {})).splitlines()
        assert text(await client.call_tool("read_knowledge", {"page": pages[0]}))
        assert (await client.call_tool("read_knowledge", {"page": "../pyproject.toml"})).is_error
        prompt = await client.get_prompt("read-a-verdict", {"candidate": "abc"})
        assert "abc" in str(prompt.messages[0].content)
        [content] = (await client.read_resource("kopt://campaigns")).contents
        assert setup.id in str(content)


async def test_client_gets_the_verdict_on_a_change(tmp_path: Path) -> None:
    campaigns.project(tmp_path / "p")
    async with Client(stdio_client(parameters(tmp_path / "p", tmp_path / "w"))) as client:
        knobs = json.loads(text(await client.call_tool("propose", {})))
        assert "PASSES" in json.dumps(knobs)
        verdict = json.loads(text(await client.call_tool(
            "evaluate", {"config": '{"PASSES": 1}', "quick": True})))
        assert verdict["correct"] and verdict["speedup"] > 2
        broken = json.loads(text(await client.call_tool(
            "evaluate", {"source": campaigns.KERNEL.replace("2.0f", "3.0f"), "quick": True})))
        assert not broken["correct"] and broken["latency_us"] is None
        both = await client.call_tool("evaluate", {"config": "{}", "patch": "x"})
        assert both.is_error and "more than one change" in text(both)


async def test_late_verb_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    campaigns.project(tmp_path / "p")
    call = VerbCall(tmp_path / "p", tmp_path / "w", timeout_s=0.6)
    with pytest.raises(VerbFailed, match=r"gave no answer within 0\.6 s"):
        await call.run("loop", str(tmp_path / "p" / "manifest.yaml"))
    campaigns.until(lambda: not campaigns.processes(tmp_path / "p"), 60)


async def test_modules_of_the_servers_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("argparse.py", "json.py", "kopt_tui.py", "harness.py"):
        (tmp_path / name).write_text("open('imported', 'w').close(); raise SystemExit('hijacked')")
    answer = await VerbCall(tmp_path, tmp_path / "w", timeout_s=60).run("status")
    assert answer["campaigns"] == [] and not (tmp_path / "imported").exists()


async def test_words_that_cannot_be_passed_on_are_one_line(tmp_path: Path) -> None:
    async with Client(stdio_client(parameters(tmp_path, tmp_path / "w"))) as client:
        for tool, words in (("propose", {"manifest": "a\0b"}),
                            ("evaluate", {"config": "1" * 3**12})):
            refused = await client.call_tool(tool, words)
            assert refused.is_error and "cannot be passed on" in text(refused)
        hook = await client.call_tool("new", {"what": "a.c", "manifest": ".git/config"})
        assert hook.is_error and "ends in .yaml" in text(hook)


def test_missing_sdk_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from kopt_tui.main import main; " \
        "sys.exit(main(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "mcp" in done.stderr and "pip install" in done.stderr


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
    with http_server(tmp_path) as (url, token):
        assert code_of(url) == 401
        assert code_of(url, Authorization="Bearer wrong") == 401
        assert code_of(url, Authorization=f"Bearer {token}") == 200
        assert code_of(url, Authorization=f"Bearer {token}", Host="evil.example") in (403, 421)
        assert code_of(url, Authorization=f"Bearer {token}", Origin="https://evil.example") == 403
        assert code_of(url, Authorization=f"Bearer {token}", Connection="Upgrade",
                       Upgrade="websocket") in (200, 403)
        port = url.split(":")[2].split("/")[0]
        second = kopt("mcp", "--http", "--port", port, "--workspace", str(tmp_path))
        assert second.returncode == 2 and f"port {port} cannot be used" in second.stderr
        assert (tmp_path / "mcp-token").read_text().strip() == token


def test_skill_names_real_verbs_and_spares_files_of_others(tmp_path: Path) -> None:
    done = kopt("mcp", "--install-skill", str(tmp_path))
    assert done.returncode == 0
    path = tmp_path / "kopt" / "SKILL.md"
    named = set(re.findall(r"`kopt ([a-z]+)", path.read_text()))
    assert len(named) > 6 and named <= set(VERBS)
    assert skill.install(tmp_path) == path  # its own file is written again
    path.write_text("mine")
    with pytest.raises(InputError, match="was not written by kopt"):
        skill.install(tmp_path)
    assert path.read_text() == "mine"
