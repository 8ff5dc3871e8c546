"""Pages: found, searched, filled with numbers of the tables, and no longer than their limit."""

from __future__ import annotations

import itertools
import re

import pytest

from engine.knowledge import page_library, page_routing
from engine.knowledge.page_library import FOLDER, MAX_PAGE, Page
from engine.knowledge.page_routing import MAX_EXCERPT, Subject
from engine.routing.op_class import classify
from engine.routing.source_language import KERNEL_TYPES
from harness.devices import datasheets
from harness.errors import InputError

PAGES = page_library.pages()
EACH = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


@EACH
def test_page_is_short_has_a_title_and_is_for_known_subjects(page: Page) -> None:
    assert page.text.startswith("# ") and page.head.summary
    assert len(page.text) <= MAX_PAGE, f"{len(page.text)} characters"
    assert set(page.head.languages) <= {*KERNEL_TYPES.values(), "c"}
    assert all(datasheets.find_arch(gpu) for gpu in page.head.gpus)
    rules = (FOLDER.parent / "engine/routing/op_rules.toml").read_text()
    assert all(f'name = "{op}"' in rules for op in page.head.ops)


@EACH
def test_links_and_named_pages_resolve(page: Page) -> None:
    folder = (FOLDER / page.path).parent
    for target in re.findall(r"\]\(([^)#]+)\)", page.text):
        assert target.startswith("https://") or (folder / target).is_file(), target
    for name in re.findall(r"`((?:ops|hardware|backend|skills)/[\w-]+)`", page.text):
        assert page_library.find(name).name == name
    for path in re.findall(r"`(knowledge/[\w./-]+)`", page.text):
        assert (FOLDER.parent / path).exists(), path


def test_hardware_page_shows_the_numbers_that_the_harness_uses() -> None:
    for arch in datasheets.archs():
        text = page_library.find(arch.name).text
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
    page = page_library.find("hardware/gfx942")
    assert Subject(gpu="gfx942:sramecc+:xnack-").fits(page) and not Subject(gpu="gfx90a").fits(page)
    assert Subject(gpu="sm_90a").fits(page_library.find("sm_90"))
    assert not Subject(gpu="").fits(page)


def test_search_needs_all_words_and_shows_where_they_are() -> None:
    hits = page_library.search(["wgmma", "TMA"])
    assert "hardware/sm_90" in [hit.page for hit in hits]
    assert all("wgmma" in page_library.find(hit.page).text for hit in hits)
    assert any("wgmma" in line for hit in hits for line in hit.lines)
    assert page_library.search(["wgmma", "nosuchword"]) == [] == page_library.search([" "])


@pytest.mark.parametrize("name", ["../pyproject.toml", "", "hardware", "hardware/sm_99"])
def test_unknown_page_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(InputError, match="there is no page"):
        page_library.find(name)
