"""All pages: kopt's own, then those of the user, then those of the project.

A later folder's page replaces an earlier one of the same name. A file that is not a valid
page is listed as a problem and otherwise ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from engine import data_folders
from engine.knowledge import page_files
from engine.knowledge.page_files import BUILT_IN, Page
from harness.errors import InputError, KoptError
from harness.formats.text import one_line, plain, suggest

LEARNED = "learned"
"""The kind of pages that a person has promoted from a tip."""
KINDS = (LEARNED, "ops", "hardware", "backend", "skills")
MAX_FILES = 200
"""Most files that are read from a user's or a project's folder."""


class PageHit(msgspec.Struct, frozen=True, kw_only=True):
    """A page that contains all words of a search, and its lines that contain the most of them."""

    page: str
    summary: str
    lines: tuple[str, ...]


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """All pages by name, in the order of KINDS, and a line for each file that is no valid page."""

    by_name: dict[str, Page]
    problems: tuple[str, ...] = ()

    @property
    def pages(self) -> tuple[Page, ...]:
        return tuple(self.by_name.values())

    def find(self, name: str) -> Page:
        """Return a page by its name or its path. Raises InputError."""
        wanted_name = name.removesuffix(".md").removesuffix("/SKILL")
        if wanted_name in self.by_name:
            return self.by_name[wanted_name]
        matches = [page for page in self.pages if page.name.endswith(f"/{wanted_name}")]
        if len(matches) == 1:
            return matches[0]
        raise InputError(f"there is no page {plain(name, 200)!r}", fix=suggest(
            wanted_name, list(self.by_name)) or "kopt knowledge lists them")

    def search(self, words: Sequence[str], most_lines: int = 3) -> list[PageHit]:
        """Return the pages that contain every word, those that contain them more often first."""
        terms = [word.lower() for text in words for word in text.split()]
        hits = []
        for page in self.pages if terms else ():
            lines = [page.head.summary, page.name, *page.text.splitlines()]
            counts = [sum(word in line.lower() for word in terms) for line in lines]
            if all(any(word in line.lower() for line in lines) for word in terms):
                best = sorted(range(2, len(lines)), key=lambda at: -counts[at])[:most_lines]
                hits.append((-sum(counts), PageHit(
                    page=page.name, summary=page.head.summary,
                    lines=tuple(lines[at].strip() for at in sorted(best) if counts[at]))))
        return [hit for _, hit in sorted(hits, key=lambda pair: pair[0])]


def load(project: Path | None) -> Library:
    """Read the pages for a project; without one, those of kopt and of the user."""
    pages = {page.name: page for page in built_in()}
    problems: list[str] = []
    for root in data_folders.overriding(BUILT_IN, project)[1:]:
        for path in _files(root):
            try:
                page = page_files.read(path, root)
                pages[page.name] = page
            except (KoptError, OSError) as error:
                problems.append(one_line(str(error), 500))
    return Library(problems=tuple(problems), by_name=dict(
        sorted(pages.items(), key=lambda item: (KINDS.index(item[1].kind), item[0]))))


@functools.cache
def built_in() -> tuple[Page, ...]:
    """Return kopt's own pages. Raises InputError for an invalid one."""
    return tuple(page_files.read(path, BUILT_IN) for path in _files(BUILT_IN))


def _files(root: Path) -> Iterator[Path]:
    most = None if root == BUILT_IN else MAX_FILES
    return islice((path for kind in KINDS for path in sorted((root / kind).rglob("*.md"))), most)
