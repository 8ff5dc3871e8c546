"""Each coding agent of the templates that is installed here does a task in a real slot.

Agents that are not installed are skipped. To try some:
`npm install --prefix DIR @openai/codex`, then
`PATH=DIR/node_modules/.bin:$PATH pytest -m slow FILE`.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from engine.coding_agents.agent_templates import names, templates
from engine.manifest.pool_schema import CliSpec
from engine.workers.cli import CliWorker
from engine.workers.transcript import TRANSCRIPT, TranscriptReader
from tests.support.agents import worker_bench
from tests.support.agents.agent_provider import agent_provider
from tests.support.engines import campaigns

pytestmark = pytest.mark.slow
KEY = "sk-scripted-0123456789"
EDIT = "sed -i 's/PASSES 16/PASSES 1/' scale.c && head -4 scale.c"
LAST = "Done.\nHypothesis: one pass is enough"
BLOCK = "\n\nscale.c\n```c\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n\n"
MODELS = {"codex": "-m gpt-5.1-codex", "gemini": "-m gemini-2.5-pro", "mini": "-m openai/gpt-4o",
          "opencode": "-m anthropic/claude-sonnet-4-5", "aider": "--model openai/gpt-4o"}


def variables(name: str, url: str) -> dict[str, str]:
    """Return the variables by which an agent finds the provider."""
    return {"claude": {"ANTHROPIC_BASE_URL": url},
            "codex": {"OPENAI_BASE_URL": f"{url}/v1"},
            "gemini": {"GOOGLE_GEMINI_BASE_URL": url},
            "qwen": {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "gpt-4o"},
            "opencode": {"OPENCODE_CONFIG_CONTENT": json.dumps(
                {"provider": {"anthropic": {"options": {"baseURL": f"{url}/v1"}}}})}}.get(
                    name, {"OPENAI_API_BASE": f"{url}/v1"})


@pytest.mark.parametrize("name", names())
def test_installed_agent_edits_the_kernel_in_its_slot(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    agent = templates()[name]
    if shutil.which(agent.program) is None:
        pytest.skip(f"{agent.title} is not installed: {agent.install}")
    setup = campaigns.create(tmp_path)
    tree = setup.repo.worktree(name, setup.repo.base)
    scratch = setup.folder.scratch(name)
    if name == "gemini":  # another address than Google's needs a setting
        (scratch / "home/.gemini").mkdir(parents=True)
        (scratch / "home/.gemini/settings.json").write_text(json.dumps(
            {"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    line = campaigns.KERNEL.splitlines()[2]
    commands = {"aider": [], "mini": [EDIT, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]}
    last_answer = LAST if name != "aider" else BLOCK.format(
        old=line, new=line.replace("16 ", "1 ")) + LAST
    for key in agent.keys:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY" if "OPENAI_API_KEY" in agent.keys and name != "opencode"
                       else agent.keys[0], KEY)
    with agent_provider(commands.get(name, [EDIT]), last_answer) as url:
        for variable, value in variables(name, url).items():
            monkeypatch.setenv(variable, value)
        report = CliWorker([CliSpec(name=name, template=name, args=MODELS.get(name, ""),
                                    timeout_s=300)]).work(
            worker_bench.task("cli", slot=name, option=name, hypothesis="one pass"),
            worker_bench.bench(setup.target, setup.device, tree, scratch, baseline="",
                               base_commit=setup.repo.base, edit=("scale.c",)),
            lambda *_: None, threading.Event())
    assert report.ok and not report.cut, report
    change = setup.repo.capture(tree, setup.repo.base, ("scale.c",))
    assert [file.path for file in change.patch.files] == ["scale.c"]
    assert "PASSES 1 " in (tree / "scale.c").read_text()
    if agent.stream:
        assert (report.steps, report.hypothesis) == (2, "one pass is enough")
        roles = [entry.role for entry in TranscriptReader(scratch / TRANSCRIPT).read()]
        assert roles[0] == "user" and {"assistant", "tool"} <= set(roles)
    assert (report.cost_usd or 0) > 0 or name in ("codex", "gemini", "qwen")
