"""Templates of coding agents: their commands, and which programs and keys a machine lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.coding_agents.agent_templates import GENERIC, templates
from engine.doctor import tools
from engine.manifest import command_checks
from engine.manifest.load import dump, parse
from engine.manifest.pool_schema import CliSpec
from harness.errors import InputError
from harness.formats import shell_command

OP = "target_op: rmsnorm\npool:\n  backends: [cli]\n  cli:\n"
FILLED = {"prompt": "/a b/PROMPT.md", "worktree": "/tree", "python": "python3"}


@pytest.mark.parametrize("name", [name for name in templates() if name != GENERIC])
def test_template_makes_a_command_that_gets_the_prompt(name: str) -> None:
    spec = CliSpec(name="a", template=name, args="--model 'x y'")
    _, [shell, _, line] = shell_command.split(shell_command.fill(spec.command_line, FILLED))
    assert shell == "/bin/sh" and "'/a b/PROMPT.md'" in line and "--model 'x y'" in line
    assert "{" not in line.replace("${", "") and templates()[name].program in line.split()
    assert templates()[name].tried and templates()[name].install
    assert parse(f"{OP}    - {{name: a, template: {name}}}\n", "m").pool.cli[0].template == name


@pytest.mark.parametrize(("entry", "message"), [
    ("{name: a, template: claud}", "m:5: pool.cli[0].template: unknown coding agent 'claud' "
                                   "(did you mean 'claude'?)"),
    ("{name: a}", "m:5: pool.cli[0]: there is no command (give one, or the template of a coding "
                  "agent)"),
    ("{name: a, template: generic}", "m:5: pool.cli[0]: there is no command"),
    ("{name: a, command: 'my {prompt}', args: --x}", "m:5: pool.cli[0].args: only a template's"),
    ("{name: a, template: claude, args: \"'\"}", "m:5: pool.cli[0].args: the command is not well "
                                                 "quoted"),
    *((f"{{name: a, template: claude, network: [{address}]}}",
       f"m:5: pool.cli[0].network: {shown} is not an address (write HOST or HOST:PORT")
      for address, shown in (("'https://host/v1'", "'https://host/v1'"), ("a b", "'a b'"),
                             ("'host:port'", "'host:port'"), ("'host:99999'", "'host:99999'"),
                             ('"ho\\nst"', r"'ho\nst'"))),
    ("{name: a, template: generic, command: my}", "m:5: pool.cli[0].command: the command does not "
                                                  "use the task")])
def test_wrong_pool_entry_is_refused_and_its_line_is_named(entry: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(f"{OP}    - {entry}\n", "m")
    assert str(error.value).startswith(message)


def test_missing_program_and_key_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = parse(f"{OP}    - {{name: a, template: claude}}\n", "m")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in templates()["claude"].keys:
        monkeypatch.delenv(name, raising=False)
    assert list(command_checks.agent_problems(manifest)) == [
        "pool.cli[0]: the program 'claude' is not installed: "
        "npm install -g @anthropic-ai/claude-code",
        "pool.cli[0]: Claude Code has no key: none of ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN,"
        " ANTHROPIC_AUTH_TOKEN is set"]
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    assert not list(command_checks.agent_problems(manifest))
    assert not list(command_checks.problems(manifest)) and "template: claude" in dump(manifest)


def test_doctor_names_the_coding_agents_that_are_installed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = tools.coding_agents()
    assert (check.status, check.found) == ("note", "none is installed") and "claude" in check.fix
    for program in ("codex", "mini"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    assert tools.coding_agents().found == "codex, mini"


def test_key_that_the_manifest_names_is_the_only_one_passed() -> None:
    named = CliSpec(name="a", template="opencode", env=("OPENAI_API_KEY", "MINE"))
    assert named.variables == ("OPENAI_API_KEY", "MINE", "OPENCODE_CONFIG_CONTENT")
    assert "ANTHROPIC_API_KEY" in CliSpec(name="a", template="opencode").variables
    assert CliSpec(name="a", command="x {prompt}").variables == ()


def test_agent_reaches_the_providers_of_its_keys_and_urls_only(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def reachable(spec: CliSpec, **passed: str) -> list[str] | None:
        found = spec.providers(passed)
        return None if found is None else list(map(str, found))

    known = CliSpec(name="a", template="opencode")
    assert reachable(known, OPENAI_API_KEY="k", MINE="https://x") == ["api.openai.com:443"]
    assert reachable(known, OPENAI_API_KEY="k", OPENCODE_CONFIG_CONTENT='{"a": "http://h:81/v1"}') \
        == ["api.openai.com:443", "h:81"]
    assert "opencode.ai:443" in (reachable(known) or [])
    for name, agent in templates().items():
        for key in agent.keys:
            assert reachable(CliSpec(name="a", template=name), **{key: "k"}), (name, key)
    for template in ("", "generic"):
        custom = CliSpec(name="a", template=template, command="x {prompt}",
                         env=("OPENAI_API_KEY", "GATE_URL", "HTTPS_PROXY"))
        assert reachable(custom, PATH="https://other") == []
        assert reachable(custom, OPENAI_API_KEY="k", GATE_URL="http://gate:81/v1",
                         HTTPS_PROXY="http://proxy:3128") == ["api.openai.com:443", "gate:81"]
    assert reachable(CliSpec(name="a", template="claude", network=True)) is None
    assert reachable(CliSpec(name="a", template="claude", network=False)) == []
    assert reachable(CliSpec(name="a", template="claude", network=("Gate.Way", "h:81"))) == \
        ["gate.way:443", "h:81"]
