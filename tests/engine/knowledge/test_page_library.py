"""Pages: found, searched, filled with numbers of the tables, and no longer than their limit."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from engine.knowledge import page_files, page_library, page_routing
from engine.knowledge.page_files import BUILT_IN, MAX_PAGE, Page
from engine.knowledge.page_routing import MAX_EXCERPT, Subject
from engine.routing.op_class import classify, words_of
from engine.routing.source_language import KERNEL_TYPES
from engine.routing.translation_pairs import LANGUAGES
from engine.transformations import transformation_registry
from harness.devices import datasheets
from harness.errors import InputError

LIBRARY = page_library.load(None)
PAGES = page_library.built_in()
FENCED = re.compile(r"^```\w*\n.*?^```$", re.DOTALL | re.MULTILINE)
QUANTITY = re.compile(r"(?<![\w.])\d[\d,.]*[ -](?:[KMG]iB|[MG]Hz|[GT]B/s|ns|banks|dies|waves|"
                      r"a clock|per lane|multiprocessors|compute units)\b")
"""A number of hardware with its unit, as pages write it."""
EACH = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


@EACH
def test_page_is_short_has_a_title_and_is_for_known_subjects(page: Page) -> None:
    assert page.text.startswith("# ") and page.head.summary
    assert len(page.text) <= MAX_PAGE, f"{len(page.text)} characters"
    assert set(page.head.languages) <= {*KERNEL_TYPES.values(), *LANGUAGES, "c"}
    assert all(datasheets.find_arch(gpu) for gpu in page.head.gpus)
    rules = (BUILT_IN.parent / "engine/routing/op_rules.toml").read_text()
    assert all(f'name = "{op}"' in rules for op in page.head.ops)
    assert all(" ".join(words_of(word)) == word for word in page.head.words)


@EACH
def test_links_and_named_pages_resolve(page: Page) -> None:
    folder = (BUILT_IN / page.path).parent
    for target in re.findall(r"\]\(([^)]+)\)", page.text):
        assert target.startswith("https://") or (folder / target).is_file(), target
    for name in re.findall(r"`((?:ops|hardware|backend|skills)/[\w-]+)`", page.text):
        assert LIBRARY.find(name).name == name
    for path in re.findall(
            r"(?<![\w/.-])((?:knowledge|bench|engine|harness|subagents)/[\w./-]+)", page.text):
        assert (BUILT_IN.parent / path.rstrip(".")).exists(), path
    for name in re.findall(r"`((?:triton|c|cuda)-[a-z-]+)`", page.text):
        assert transformation_registry.find(name), name


@EACH
def test_code_stands_in_snippets_and_numbers_of_hardware_in_its_tables(page: Page) -> None:
    """Snippets are compiled and run; the harness computes with the tables."""
    assert not [line for line in FENCED.sub("", page.text).splitlines() if line.startswith("    ")]
    assert {*FENCED.findall(page.text)} <= {
        page_files.snippet(path.name) for path in (BUILT_IN / "snippets").glob("*.*")}
    written = re.sub(r"\{\{.*?\}\}", "", (BUILT_IN / page.path).read_text(), flags=re.DOTALL)
    assert QUANTITY.findall(written) == []


def test_readme_names_what_exists() -> None:
    names = re.findall(r"^\| `([\w./]+)` \|", (BUILT_IN / "README.md").read_text(), re.MULTILINE)
    assert len(names) > 4 and all((BUILT_IN / name).exists() for name in names)


def test_hardware_page_shows_the_numbers_that_the_harness_uses() -> None:
    for arch in datasheets.archs():
        text = LIBRARY.find(arch.name).text
        assert f"| {arch.registers} (" in text and f"{arch.shared / 1024:g} KiB" in text
        for row in arch.matrix:
            assert f"| `{row.instruction}` | {row.shape} | {row.dtype} | {row.flops_per_clock} |" \
                in text
        for card in datasheets.cards():
            assert (f"| {card.name} | {card.multiprocessors} |" in text) == (card.arch == arch.name)


def test_excerpt_is_bounded_and_for_its_subject() -> None:
    gpus = [arch.name for arch in datasheets.archs()]
    for op, language, gpu in itertools.product(
            ("", "matmul", "attention", "rmsnorm", "softmax", "moe", "gelu"),
            ("", "triton", "cuda", "hip", "c", "tilelang"), ("", "x86_64", *gpus)):
        subject = Subject(op=classify([op]).name, gpu=gpu, language=language)
        text = page_routing.excerpt(subject)
        assert len(text) <= MAX_EXCERPT
        assert all(subject.fits(page) for page in PAGES if page.text.strip() in text)
        assert [name for name in gpus if f"# {name}:" in text] == [gpu] * (gpu in gpus)


def test_names_of_devices_find_their_architecture() -> None:
    page = LIBRARY.find("hardware/gfx942")
    assert Subject(gpu="gfx942:sramecc+:xnack-").fits(page) and not Subject(gpu="gfx90a").fits(page)
    assert Subject(gpu="sm_90a").fits(LIBRARY.find("sm_90"))
    assert not Subject(gpu="").fits(page)


def test_search_needs_all_words_and_shows_where_they_are() -> None:
    hits = LIBRARY.search(["wgmma", "TMA"])
    assert "hardware/sm_90" in [hit.page for hit in hits]
    assert all("wgmma" in LIBRARY.find(hit.page).text for hit in hits)
    assert any("wgmma" in line for hit in hits for line in hit.lines)
    assert LIBRARY.search(["wgmma", "nosuchword"]) == [] == LIBRARY.search([" "])


@pytest.mark.parametrize("name", ["../pyproject.toml", "", "hardware", "hardware/sm_99"])
def test_unknown_page_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(InputError, match="there is no page"):
        LIBRARY.find(name)


def write(root: Path, name: str, text: str, head: str = "summary: mine") -> None:
    path = root / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{head}\n---\n{text}\n")


def test_projects_page_replaces_the_users_which_replaces_kopts(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    user, project = tmp_path / "kopt" / "knowledge", tmp_path / "p" / "knowledge"
    write(user, "ops/gemm", "the user's {{ 7 * 7 }}")
    write(user, "skills/mine/SKILL", "the user's skill")
    assert page_library.load(None).find("gemm").text == "the user's {{ 7 * 7 }}\n"
    write(project, "ops/gemm", "the project's")
    write(project, "ops/long", "x" * MAX_PAGE)
    write(project, "ops/other", "text", head="nosuchfield: 1")
    (project / "ops" / "headless.md").write_text("no head")
    (project / "ops" / "folder.md").mkdir()
    loaded = page_library.load(tmp_path / "p")
    assert loaded.find("ops/gemm").text == "the project's\n"
    assert loaded.find("skills/mine").folder == str(user)
    assert [name for name in loaded.by_name if name not in {page.name for page in PAGES}] == [
        "skills/mine"]
    assert len(loaded.problems) == 4 and all(str(project) in line for line in loaded.problems)


def test_learned_pages_leave_room_for_the_others(tmp_path: Path) -> None:
    for number in range(9):
        write(tmp_path / "knowledge", f"learned/{number}", f"learned {number} " + "x" * 1500)
    text = page_routing.excerpt(Subject(op="GEMM", language="triton"), tmp_path)
    assert text.count("learned ") == 2 and "# GEMM" in text and len(text) <= MAX_EXCERPT
