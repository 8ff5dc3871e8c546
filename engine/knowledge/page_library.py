"""Reads the pages of knowledge/, fills in their numbers and snippets, and searches them.

A page is Markdown with a head: what it is about, and for which ops, languages and architectures.
Numbers come from the tables in knowledge/hardware, snippets from knowledge/snippets, so that what a
page shows is what the harness computes with and what the tests run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.devices import datasheets
from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.text import plain, suggest
from harness.formats.yaml_decode import decode

if TYPE_CHECKING:  # jinja2 is imported when a page is read
    from jinja2 import Environment

FOLDER = Path(__file__).resolve().parents[2] / "knowledge"
KINDS = ("ops", "hardware", "backend", "skills")
MAX_PAGE = 5000
"""Characters of the longest page."""
CHECKS = "--- checks ---"
"""What follows a comment with this in a snippet is for the tests."""
_HEAD = re.compile(r"\A---\n(.*?\n)---\n+", re.DOTALL)
_FENCES = {".py": "python", ".c": "c"}


class PageHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of a page. An empty list means that the page is for all of them."""

    summary: str
    ops: tuple[str, ...] = ()
    """Classes of ops, as `engine.routing` names them."""
    languages: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """Architectures, such as `sm_90`."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page; its name is its path without the suffix, or the folder of a SKILL.md."""

    name: str
    path: str
    head: PageHead
    text: str

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]


class PageHit(msgspec.Struct, frozen=True, kw_only=True):
    """A page that contains all words of a search, and the lines that contain most of them."""

    page: str
    summary: str
    lines: tuple[str, ...]


@functools.cache
def pages() -> tuple[Page, ...]:
    """Return all pages, those about ops first. Raises InputError for a page that is not one."""
    paths = [path for kind in KINDS for path in sorted((FOLDER / kind).rglob("*.md"))]
    return tuple(_read(path) for path in paths)


def find(name: str) -> Page:
    """Return a page by its name or its path. Raises InputError."""
    known = {page.name: page for page in pages()}
    wanted = name.removesuffix(".md").removesuffix("/SKILL")
    if wanted in known:
        return known[wanted]
    ends = [page for page in pages() if page.name.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0]
    raise InputError(f"there is no page {plain(name, 200)!r}", fix=suggest(wanted, list(known)))


def search(words: Sequence[str], most_lines: int = 3) -> list[PageHit]:
    """Return the pages that contain every word, those that contain them more often first."""
    wanted = [word.lower() for text in words for word in text.split()]
    found = []
    for page in pages() if wanted else ():
        lines = [page.head.summary, page.name, *page.text.splitlines()]
        counts = [sum(word in line.lower() for word in wanted) for line in lines]
        if all(any(word in line.lower() for line in lines) for word in wanted):
            best = sorted(range(2, len(lines)), key=lambda at: -counts[at])[:most_lines]
            found.append((-sum(counts), PageHit(
                page=page.name, summary=page.head.summary,
                lines=tuple(lines[at].strip() for at in sorted(best) if counts[at]))))
    return [hit for _, hit in sorted(found, key=lambda pair: pair[0])]


def _read(path: Path) -> Page:
    where = path.relative_to(FOLDER).as_posix()
    raw = path.read_text(encoding="utf-8")
    head = _HEAD.match(raw)
    if head is None:
        raise InputError("a page begins with a head between two lines `---`", where=where)
    fields = decode(yaml_document.parse(head[1], where), PageHead, msgspec.convert)
    name = where.removesuffix(".md").removesuffix("/SKILL")
    if name.startswith("hardware/"):
        fields = msgspec.structs.replace(fields, gpus=(path.stem,))
    return Page(name=name, path=where, head=fields, text=_fill(raw[head.end():], path.stem))


def _fill(text: str, stem: str) -> str:
    """Return a page's text with the numbers and snippets that it names."""
    arch = datasheets.find_arch(stem)
    full = 0 if arch is None else max(
        registers for registers in range(arch.registers_per_thread + 1)
        if datasheets.resident_warps(arch, registers) >= arch.warps)
    return _environment().from_string(text).render(arch=arch, full_registers=full)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(FOLDER), trim_blocks=True,
                              lstrip_blocks=True, undefined=StrictUndefined)
    environment.globals |= {
        "snippet": snippet, "archs": {arch.name: arch for arch in datasheets.archs()},
        "card": {card.name: card for card in datasheets.cards()}.__getitem__,
        "cards_of": lambda name: [card for card in datasheets.cards() if card.arch == name]}
    environment.filters["kib"] = lambda size: f"{size / 1024:g} KiB"
    return environment


def snippet(name: str) -> str:
    """Return the part of a snippet that pages show, as a fenced block."""
    path = FOLDER / "snippets" / name
    shown = re.split(rf"^(?:#|//) {CHECKS}$", path.read_text(encoding="utf-8"), maxsplit=1,
                     flags=re.MULTILINE)[0]
    return f"```{_FENCES[path.suffix]}\n{shown.strip()}\n```"
