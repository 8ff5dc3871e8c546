"""Snippets of knowledge/: each compiles and computes what it says, and a page shows it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from engine.knowledge import page_files, page_library
from engine.knowledge.page_files import BUILT_IN, CHECKS
from tests.engine.knowledge import run_snippets
from tests.support.programs import forked_program

TRITON = sorted((BUILT_IN / "snippets").glob("*.py"))
C = sorted((BUILT_IN / "snippets").glob("*.c"))
NAMES = yaml.safe_load((BUILT_IN / "api_names.yaml").read_text())
TEXT = "\n".join(page.text for page in page_library.built_in())


def _run(mode: str, words: Iterable[str], tmp_path: Path) -> str:
    """Run the checking program, and return its output."""
    return forked_program.output(Path(run_snippets.__file__), mode, *words, folder=tmp_path,
                                 interpret=mode == "run")


@pytest.mark.parametrize("mode", ["compile", "run"])
def test_triton_snippets_compile_for_two_gpus_and_run_in_the_interpreter(mode: str, tmp_path: Path,
                                                                         ) -> None:
    printed = _run(mode, map(str, TRITON), tmp_path)
    assert printed.split() == [path.name for path in TRITON]


def test_names_of_triton_exist_in_the_installed_version(tmp_path: Path) -> None:
    names = set(re.findall(r"(?<![\w./])(?:tl|triton)(?:\.[A-Za-z]\w*)+", TEXT))
    assert len(names) > 10
    _run("names", sorted(names), tmp_path)


def test_listed_names_of_other_libraries_are_those_that_pages_use() -> None:
    for entry in NAMES:
        if "prefix" in entry:
            used = set(re.findall(
                rf"(?<![\w.]){re.escape(entry['prefix'])}([A-Za-z]\w*(?:\.[A-Za-z]\w*)*)", TEXT))
            assert used == set(entry["names"]), entry["source"]


@pytest.mark.parametrize("name", ["tilelang", "cute-dsl", "flydsl", "ck"])
def test_every_name_in_code_on_the_page_of_a_library_is_listed(name: str) -> None:
    page = f"backend/{name}"
    own = {each for entry in NAMES if entry.get("page") == page for each in entry["names"]}
    listed = own | {entry["prefix"] + each for entry in NAMES if "prefix" in entry
                    for each in entry["names"]}
    used = set(_names(page_library.load(None).find(page).text))
    assert used <= listed and own <= used, (used - listed, own - used)


def _names(text: str) -> Iterator[str]:
    """Yield the names in code that are dotted, called on a result, or clearly no plain word."""
    for code in re.findall(r"`([^`\n]+)`", text):
        if "/" not in code and not re.search(r"\.(?:py|md|hpp)$", code):
            yield from re.findall(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+", code)
            yield from re.findall(r"\)\.(\w+)", code)
            yield from re.findall(r"^[.@]?(\w*(?:_|[a-z][A-Z])\w*)(?![\w.:])", code)


@pytest.mark.parametrize("path", C, ids=[path.name for path in C])
def test_c_snippet_compiles_without_warnings_and_is_right(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "check"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Wno-psabi", "-Werror", "-o", program, path],
                   check=True)
    assert subprocess.run([program], timeout=60).returncode == 0


@pytest.mark.parametrize("path", [*TRITON, *C], ids=[path.name for path in (*TRITON, *C)])
def test_a_page_shows_the_snippet_without_its_checks(path: Path) -> None:
    shown = page_files.snippet(path.name)
    assert any(shown in page.text for page in page_library.built_in())
    assert CHECKS not in shown and CHECKS in path.read_text()
