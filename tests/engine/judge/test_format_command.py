"""A format command changes only files that the candidate may change or has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns
from engine.campaign.setup import Setup
from engine.judge import candidate
from engine.judge.candidate import CandidateTree
from engine.judge.judge import breach
from engine.repository.patches.patch import parse
from harness.errors import InputError
from harness.formats import yaml_document
from tests.support import repos
from tests.support.benchmarks.benchmark_case import FILES, MANIFEST, kernel

OTHERS = {"agent.py": "x  = 1\n", "other.py": "y  = 1\n", "setup.py": "z  = 1\n"}
TIDY = "for f in *.py; do sed -i 's/  *=/ =/' $f; done"
"""Formats every file, as `black .` does."""


def create(root: Path, **fields: Any) -> Setup:
    repos.project(root / "p", {**FILES, **OTHERS, "manifest.yaml": yaml_document.dump(
        {**MANIFEST, **fields})})
    return campaigns.create(root / "w", root / "p" / "manifest.yaml")


def candidate_of(setup: Setup, **files: str) -> CandidateTree:
    """Return a candidate that replaces these files; `_` stands for `.`."""
    user = setup.repo.project
    for name, text in files.items():
        (user / name.replace("_", ".")).write_text(text)
    patch = parse(repos.git(user, "diff") + "\n")
    repos.git(user, "checkout", "-q", ".")
    change = setup.repo.apply(setup.repo.base, patch)
    return candidate.make(setup, change, setup.repo.base, round=2, slot="fixed",
                          hypothesis="less", bottleneck="")


def changed_files(setup: Setup, formatted: CandidateTree) -> set[str]:
    before = setup.repo.base
    return {name for name in setup.repo.files(formatted.tree)
            if setup.repo.read(formatted.tree, name) != setup.repo.read(before, name)}


@pytest.mark.parametrize(("edit", "frozen", "changed"), [
    (["kernel.py"], [], {"kernel.py"}),
    (["*.py"], ["agent.py", "bench.py"], {"kernel.py", "other.py"}),
])
def test_formatter_leaves_forbidden_files_unchanged(
        tmp_path: Path, edit: list[str], frozen: list[str], changed: set[str]) -> None:
    setup = create(tmp_path, edit=edit, frozen=frozen)
    before = candidate_of(setup, kernel_py=kernel(50.0, "a  = 1\n"))
    formatted = candidate.formatted(setup, before, TIDY)
    assert breach(formatted.violations) is None and changed_files(setup, formatted) == changed
    assert b"a = 1" in setup.repo.read(formatted.tree, "kernel.py")
    assert formatted.id != before.id and formatted.candidate.hypothesis == "less"


def test_formatting_other_files_makes_the_same_candidate(tmp_path: Path) -> None:
    setup = create(tmp_path)
    before = candidate_of(setup, kernel_py=kernel(50.0))
    formatted = candidate.formatted(setup, before, TIDY)
    assert (formatted.tree, formatted.id) == (before.tree, before.id)


def test_every_file_that_the_candidate_changed_is_formatted(tmp_path: Path) -> None:
    """A change outside of `edit` may still be approved: it is formatted like the others."""
    setup = create(tmp_path)
    before = candidate_of(setup, kernel_py=kernel(50.0), other_py="y  = 2\n")
    formatted = candidate.formatted(setup, before, TIDY)
    assert changed_files(setup, formatted) == {"kernel.py", "other.py"}
    assert setup.repo.read(formatted.tree, "other.py") == b"y = 2\n" and formatted.violations


@pytest.mark.parametrize(("command", "why"), [
    ("exit 3", "exit"), ("git init -q . && false", "exit"),
    ("printf 'COST = 100.0\\n\\ndef err(m):\\n    return 0\\n' > kernel.py",
     "reverts the whole change"),
])
def test_failing_or_reverting_formatter_is_an_error(tmp_path: Path, command: str, why: str) -> None:
    setup = create(tmp_path)
    with pytest.raises(InputError, match=why):
        candidate.formatted(setup, candidate_of(setup, kernel_py=kernel(50.0)), command)
