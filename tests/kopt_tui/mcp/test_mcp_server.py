"""An outside agent's client talks to a real `kopt mcp`, over both transports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from engine.journal.write import Writer
from harness.errors import InputError
from kopt_tui.main import VERBS
from kopt_tui.mcp import skill, verb_call
from kopt_tui.mcp.verb_call import VerbCall, VerbFailed
from tests.support.engines import campaigns
from tests.support.paths import ROOT
from tests.support.programs.command_line import kopt, write_campaign

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.skipif(find_spec("mcp") is None,
                                reason="the extra mcp is not installed")
TOOLS = {"propose", "evaluate", "loop", "new", "campaign_status", "submit_candidate", "verdict",
         "events_since", "read_knowledge"}


def started(root: Path, workspace: Path, errors: TextIO = sys.stderr) -> Client:
    from mcp import Client, StdioServerParameters  # not at the top, as every test worker loads it
    from mcp.client.stdio import stdio_client

    return Client(stdio_client(StdioServerParameters(
        command=sys.executable, cwd=str(root), env={"PYTHONPATH": str(ROOT)},
        args=["-m", "kopt_tui", "mcp", "--workspace", str(workspace)]), errlog=errors))


def text(result: Any) -> str:
    return "".join(getattr(part, "text", "") for part in result.content)


@pytest.mark.parametrize(("name", "arguments", "why"), [
    ("read-a-verdict", {}, "Missing required arguments: {'candidate'}"),
    ("read-a-verdict", {"candidate": "c", "other": "x"}, "other Unexpected keyword argument"),
    ("nosuch", {}, "Unknown prompt: nosuch")])
async def test_bad_request_for_a_prompt_gets_its_reason_and_no_traceback(
        tmp_path: Path, name: str, arguments: dict[str, str], why: str) -> None:
    from mcp.shared.exceptions import MCPError

    with (tmp_path / "errors").open("w") as errors:
        async with started(tmp_path, tmp_path / "w", errors) as client:
            with pytest.raises(MCPError, match=why):
                await client.get_prompt(name, arguments)
    assert (tmp_path / "errors").read_text() == ""


async def data(client: Client, tool: str, **words: Any) -> Any:
    """Return a tool's answer, which the client has checked by the tool's output schema."""
    result = await client.call_tool(tool, words)
    assert not result.is_error, text(result)
    return result.structured_content


@pytest.mark.slow
async def test_client_reads_campaigns_events_and_knowledge_and_gets_errors_for_bad_requests(
        tmp_path: Path) -> None:
    from mcp.shared.exceptions import MCPError

    setup = campaigns.create(tmp_path)
    project = Path(setup.manifest.project)
    writer = Writer(setup.workspace)
    for number in range(3):
        writer.event(setup.id, "log", message=f"line \u2028 {number}")
    writer.close()
    async with started(project, setup.workspace) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        status = await client.call_tool("campaign_status", {})
        assert json.loads(text(status)) == status.structured_content
        status = status.structured_content
        assert [row["campaign"]["id"] for row in status["campaigns"]] == [setup.id]
        manifest = str(setup.folder.path / "manifest.yaml")
        outside = await client.call_tool("propose", {"manifest": manifest})
        assert outside.is_error and "outside the folder" in text(outside)
        option = await client.call_tool("verdict", {"candidate": "--help"})
        assert option.is_error and "begins with '-'" in text(option)
        unknown = await client.call_tool("verdict", {"candidate": "nosuchcandidate"})
        assert unknown.is_error and "nosuchcandidate" in text(unknown)
        page = await data(client, "events_since", after=0, lines=1)
        rest = await data(client, "events_since", after=page["last"])
        newest = await data(client, "events_since", lines=1)
        assert [event["seq"] for event in page["events"]] == [1] and page["last"] == 1
        assert rest["events"][0]["seq"] == 2 and newest["events"] == rest["events"][-1:]
        assert await data(client, "events_since", after=99999) == {"events": [], "last": 99999}
        name = await client.call_tool("verdict", {"candidate": setup.id[:5]})
        assert name.is_error and "names no candidate" in text(name)
        patch = campaigns.patch(setup, campaigns.FASTER).decode()
        for given, why in ((patch, "no engine runs"), ("not a diff", "contains no diff")):
            refused = await client.call_tool("submit_candidate", {"patch": given})
            assert refused.is_error and why in text(refused)
        pages = text(await client.call_tool("read_knowledge", {})).splitlines()
        assert text(await client.call_tool("read_knowledge", {"page": pages[0]}))
        assert (await client.call_tool("read_knowledge", {"page": "../pyproject.toml"})).is_error
        prompt = await client.get_prompt("read-a-verdict", {"candidate": "abc"})
        assert "abc" in str(prompt.messages[0].content)
        [content] = (await client.read_resource("kopt://campaigns")).contents
        assert setup.id in str(content)
        [content] = (await client.read_resource(f"kopt://report/{setup.id}")).contents
        assert setup.id in str(content)
        for name, why in (("nosuch", "no campaign 'nosuch'"), ("--help", "begins with '-'")):
            with pytest.raises(MCPError, match=why):
                await client.read_resource(f"kopt://report/{name}")


@pytest.mark.slow
async def test_client_gets_verdicts_and_an_error_for_invalid_arguments(tmp_path: Path) -> None:
    campaigns.project(tmp_path / "p")
    async with started(tmp_path / "p", tmp_path / "w") as client:
        assert "PASSES" in (await data(client, "propose"))["search_space"]
        verdict = await data(client, "evaluate", config={"PASSES": 1}, quick=True)
        assert verdict["correct"] and verdict["speedup"] > 2
        broken = await data(client, "evaluate", quick=True,
                            source=campaigns.KERNEL.replace("2.0f", "3.0f"))
        assert not broken["correct"] and broken["latency_us"] is None
        both = await client.call_tool("evaluate", {"config": "{}", "patch": "x"})
        assert both.is_error and "more than one change" in text(both)
        for tool, words in (("propose", {"manifest": "a\0b"}),
                            ("submit_candidate", {"patch": "x", "hypothesis": "1" * 3**12})):
            refused = await client.call_tool(tool, words)
            assert refused.is_error and "cannot be passed on" in text(refused)


MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
async def test_client_writes_a_manifest_and_searches_knobs(tmp_path: Path) -> None:
    root = campaigns.project(tmp_path / "p").parent
    (root / "problem.py").write_text(MODULE)
    async with started(root, tmp_path / "w") as client:
        found = await data(client, "loop", budget=4, only="PASSES")
        assert found["best"]["PASSES"] < 16 and found["verdict"]["correct"], found
        assert found["verdict"]["speedup"] > 1.5
        written = await data(client, "new", what="problem.py", manifest="module.yaml")
    assert Path(written["manifest"]) == root / "module.yaml" and "problem" in str(written)
    assert "target_lang: python" in (root / "module.yaml").read_text()


@pytest.mark.slow
async def test_projects_outside_the_folder_are_refused_and_nothing_is_overwritten(
        tmp_path: Path) -> None:
    campaigns.project(tmp_path / "other")
    root = campaigns.project(tmp_path / "p").parent
    (root / "away.yaml").write_text("target_op: scale\nproject: ../other\n")
    mine = (root / "manifest.yaml").read_text()
    async with started(root, tmp_path / "w") as client:
        for tool, words, why in (
                ("propose", {"manifest": "away.yaml"}, "other' is outside the folder"),
                ("evaluate", {"manifest": "away.yaml"}, "is outside the folder"),
                ("new", {"what": "../other/scale.c"}, "is outside the folder"),
                ("new", {"what": "scale.c", "manifest": ".git/config"}, "ends in .yaml"),
                ("new", {"what": "scale.c"}, "the manifest already exists"),
                ("new", {"what": "scale.c", "force": True}, "the manifest already exists")):
            refused = await client.call_tool(tool, words)
            assert refused.is_error and why in text(refused), (tool, words, text(refused))
    assert (root / "manifest.yaml").read_text() == mine
    (root / "inner").mkdir()
    inner = VerbCall(root / "inner", tmp_path / "w", 1.0)
    assert inner.kernel("k.py:f") == [f"{root}/inner/k.py:f", f"--project={root}/inner"]
    assert VerbCall(root, tmp_path / "w", 1.0).kernel("k.py") == [f"{root}/k.py"]


async def test_long_call_sends_progress_messages(tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    campaigns.project(tmp_path / "p")
    monkeypatch.setattr(verb_call, "BEAT_S", 0.01)
    beats: list[float] = []

    async def beat(seconds: float) -> None:
        beats.append(seconds)

    call = VerbCall(tmp_path / "p", tmp_path / "w", timeout_s=60)
    answer = await call.run_on_kernel("propose", call.manifest("manifest.yaml"), beat=beat)
    assert answer["op"] == "scale" and len(beats) > 1 and beats == sorted(beats)


def is_open(file: Path) -> bool:
    """Return whether a process has a file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == str(file):
                return True
    return False


def test_verb_ends_when_its_server_ends(tmp_path: Path) -> None:
    (logs := write_campaign(tmp_path) / "logs").mkdir()
    (log := logs / "optimize.md").write_text("a line\n")
    server = subprocess.Popen(
        [sys.executable, "-c", "import asyncio, sys; from pathlib import Path; "
         "from kopt_tui.mcp.verb_call import VerbCall; folder = Path(sys.argv[1]); "
         "asyncio.run(VerbCall(folder, folder, 600).run('logs', '--follow'))", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    campaigns.until(lambda: is_open(log), 60)
    server.kill()
    server.wait()
    campaigns.until(lambda: not campaigns.processes(tmp_path), 20)


async def test_verb_that_exceeds_its_time_limit_is_ended_with_all_its_processes(
        tmp_path: Path) -> None:
    campaigns.project(tmp_path / "p")
    call = VerbCall(tmp_path / "p", tmp_path / "w", timeout_s=0.6)
    with pytest.raises(VerbFailed, match=r"did not answer within 0\.6 s"):
        await call.run("loop", str(tmp_path / "p" / "manifest.yaml"))
    campaigns.until(lambda: not campaigns.processes(tmp_path / "p"), 60)


async def test_modules_of_the_servers_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("argparse.py", "json.py", "kopt_tui.py", "harness.py"):
        (tmp_path / name).write_text("open('imported', 'w').close(); raise SystemExit('hijacked')")
    answer = await VerbCall(tmp_path, tmp_path / "w", timeout_s=60).run("status")
    assert answer["campaigns"] == [] and not (tmp_path / "imported").exists()


def test_missing_sdk_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from kopt_tui.main import main; " \
        "sys.exit(main(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "mcp" in done.stderr and "pip install" in done.stderr


def test_skill_names_existing_verbs_and_overwrites_no_other_file(tmp_path: Path) -> None:
    done = kopt("mcp", "--install-skill", str(tmp_path))
    assert done.returncode == 0
    path = tmp_path / "kopt" / "SKILL.md"
    named = re.findall(r"`kopt ([a-z]+)([^`]*)`", path.read_text())
    assert len(named) > 8 and {verb for verb, _ in named} <= set(VERBS)
    for verb, words in named:
        usage = kopt(verb, "--help").stdout
        assert all(flag in usage for flag in re.findall(r"--[a-z-]+", words)), (verb, words)
    assert skill.install(tmp_path) == path  # kopt's own file is rewritten
    path.write_text("mine")
    with pytest.raises(InputError, match="was not written by kopt"):
        skill.install(tmp_path)
    assert path.read_text() == "mine"
