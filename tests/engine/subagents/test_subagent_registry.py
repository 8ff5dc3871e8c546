"""The registry of subagents: folders, overrides, variants and bad files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.subagents import rendering, subagent_registry
from engine.subagents.rendering import SlotFacts
from harness.errors import InputError

GENERAL = "general-kernel-optimization"
PROMPT = "Work on {{ op }} in {{ source }}.\n"


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "kopt" / "subagents"


def write(root: Path, folder: str, definition: str, prompt: str | None = PROMPT) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    (path / "SUBAGENT.yaml").write_text(definition)
    if prompt is not None:
        (path / "SYSTEM_PROMPT.md").write_text(prompt)
    return path


def test_project_overrides_user_overrides_built_in(tmp_path: Path, user_folder: Path) -> None:
    write(user_folder, "mine", "{name: mine, description: the user's}")
    write(user_folder, "own", f"{{name: {GENERAL}, description: the user's}}")
    assert subagent_registry.load(None).get(GENERAL).description == "the user's"
    write(tmp_path / "subagents", "p", f"{{name: {GENERAL}, description: the project's}}")
    loaded = subagent_registry.load(tmp_path)
    assert loaded.get(GENERAL).description == "the project's"
    assert loaded.get("mine").description == "the user's"
    assert loaded.problems == ()


def test_an_override_states_only_what_it_changes(user_folder: Path) -> None:
    built_in = subagent_registry.load(None).get(GENERAL)
    write(user_folder, GENERAL, f"{{name: {GENERAL}, agent: {{cost_limit_usd: 2}}}}", None)
    override = subagent_registry.load(None).get(GENERAL)
    assert (override.cost_limit_usd, override.step_limit) == (2.0, built_in.step_limit)
    assert override.system_prompt == built_in.system_prompt


def test_a_changed_file_is_read_again(user_folder: Path) -> None:
    mine = write(user_folder, "mine", "{name: mine, description: first}")
    assert subagent_registry.load(None).get("mine").description == "first"
    (mine / "SUBAGENT.yaml").write_text("{name: mine, description: other}")  # of the same size
    assert subagent_registry.load(None).get("mine").description == "other"
    (mine / "SYSTEM_PROMPT.md").write_text("Work.\n")
    assert subagent_registry.load(None).get("mine").system_prompt == "Work.\n"
    (mine / "SUBAGENT.yaml").unlink()
    assert "mine" not in subagent_registry.load(None).subagents


@pytest.mark.parametrize(("definition", "prompt", "words"), [
    ("{name: bad, description: d, colour: red}", PROMPT, "unknown key 'colour'"),
    ("{name: Bad Name, description: d}", PROMPT, "name"),
    ("{name: bad, description: d, agent: {step_limit: -1}}", PROMPT, "agent.step_limit"),
    ("{name: bad}", PROMPT, "'description' is missing"),
    ("{name: bad, description: d}", None, "no SYSTEM_PROMPT.md"),
    ("{name: bad, description: d, variants: 3}", PROMPT, "variants"),
    ("{name: bad, description: d, variants: []}", PROMPT, "one or more mappings"),
    ("- a list", PROMPT, "mapping"),
    ("{name: [1", PROMPT, "SUBAGENT.yaml"),
])
def test_error_about_a_bad_file_is_one_line_and_hides_no_other_file(
        user_folder: Path, definition: str, prompt: str | None, words: str) -> None:
    write(user_folder, "bad", definition, prompt)
    write(user_folder, "good", "{name: good, description: d}")
    loaded = subagent_registry.load(None)
    [problem] = loaded.problems
    assert words in problem and str(user_folder / "bad") in problem and "\n" not in problem
    assert "good" in loaded.names and GENERAL in loaded.names


def test_two_folders_with_one_name_are_a_problem(user_folder: Path) -> None:
    write(user_folder, "a", "{name: same, description: first}")
    write(user_folder, "b", "{name: same, description: second}")
    loaded = subagent_registry.load(None)
    assert loaded.get("same").description == "first"
    [problem] = loaded.problems
    assert str(user_folder / "b") in problem and str(user_folder / "a") in problem


def test_variants_make_one_subagent_each(user_folder: Path) -> None:
    write(user_folder, "t", """\
name: from-{source}-to-{target}
description: From {source} to {target}.
source_language: "{source}"
variants:
  - {source: hip, target: ck, requires: [hipcc]}
  - {source: ck, target: hip}
""", "{{ source_language }}")
    loaded = subagent_registry.load(None)
    assert loaded.get("from-hip-to-ck").requires == ("hipcc",)
    assert loaded.get("from-ck-to-hip").requires == ()
    assert rendering.system_prompt(loaded.get("from-ck-to-hip"), SlotFacts()) == "ck\n"


def test_language_matches_by_extension_and_by_markers_in_the_first_8_kib(
        user_folder: Path) -> None:
    write(user_folder, "m", """\
name: matcher
description: d
language_match: {extensions: [.py], markers: [import triton, "@triton.jit"], confidence: 0.5}
""")
    known = subagent_registry.load(None)
    text = "import triton\n@triton.jit\ndef f(): pass\n"
    assert known.get("matcher").score("k.py", text) == 2.0
    assert next(iter(known.for_source("k.py", text))) == "matcher"
    for path, other in (("k.py", "#" * 8192 + text), ("k.c", text), ("k.py", "import torch")):
        assert "matcher" not in known.for_source(path, other)
        assert GENERAL in known.for_source(path, other)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'general-kernel-optimization'"):
        subagent_registry.load(None).get("general-kernel-optimisation")


def test_a_prompt_runs_in_a_sandbox_and_its_facts_are_one_line(user_folder: Path) -> None:
    write(user_folder, "a", "{name: a, description: d}", "{{ op }}|{{ entry }}")
    write(user_folder, "b", "{name: b, description: d}", "{{ ''.__class__.__mro__ }}")
    write(user_folder, "c", "{name: c, description: d}", "{{ nothing }}")
    write(user_folder, "d", "{name: d, description: d}", "{{ op + 1 }}")
    write(user_folder, "e", "{name: e, description: d}", "{{ 1 / 0 }}")
    write(user_folder, "f", "{name: f, description: d}", "{{ range(10**9) }}")
    loaded = subagent_registry.load(None)
    facts = SlotFacts(op="a\nb\x1b[31m", entry="f")
    assert rendering.system_prompt(loaded.get("a"), facts) == "a b|f\n"
    for name in "bcdef":
        with pytest.raises(InputError, match="cannot be rendered"):
            rendering.system_prompt(loaded.get(name), facts)


def test_a_prompt_that_loops_or_takes_all_memory_is_a_fault_of_its_file(
        user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(user_folder, "loops", "{name: loops, description: d}",
          "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    write(user_folder, "grows", "{name: grows, description: d}", "{{ ('x' * 10**9) * 9 }}")
    loaded = subagent_registry.load(None)
    with pytest.raises(InputError, match=r"rendered: (MemoryError|took more than 512 MiB)"):
        rendering.system_prompt(loaded.get("grows"), SlotFacts())
    monkeypatch.setattr(rendering, "LIMITS", replace(rendering.LIMITS, wall_s=1.0))
    with pytest.raises(InputError, match="cannot be rendered: ran past its limit of 1 s"):
        rendering.system_prompt(loaded.get("loops"), SlotFacts())


def test_a_required_parameter_needs_a_value(user_folder: Path) -> None:
    write(user_folder, "a", """\
name: a
description: d
parameters: [{name: goal, description: what to reach, required: true}]
""", "{{ goal }}")
    subagent = subagent_registry.load(None).get("a")
    with pytest.raises(InputError, match="'goal' has no value"):
        rendering.system_prompt(subagent, SlotFacts())
    assert rendering.system_prompt(subagent, SlotFacts(), {"goal": "2x"}) == "2x\n"
