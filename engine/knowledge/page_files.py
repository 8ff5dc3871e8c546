"""Reads a page: Markdown with a head that says what it is about, and for which subjects.

kopt's own pages are templates: numbers come from the tables in knowledge/hardware, snippets from
knowledge/snippets, so that a page shows what the harness computes with and what the tests run.
Pages of the user and of a project are plain text.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.devices import datasheets
from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.text import one_line, plain
from harness.formats.yaml_decode import decode

if TYPE_CHECKING:  # jinja2 is imported when a page is read
    from jinja2 import Environment

BUILT_IN = Path(__file__).resolve().parents[2] / "knowledge"
MAX_PAGE = 5000
"""The maximum number of characters of a page."""
CHECKS = "--- checks ---"
"""In a snippet, what follows a comment with this text is for tests only."""
_HEAD = re.compile(r"\A---\n(.*?\n)---\n+", re.DOTALL)
_FENCES = {".py": "python", ".c": "c"}


class PageHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of a page. An empty tuple means all: all classes of ops, languages or GPUs."""

    summary: str
    ops: tuple[str, ...] = ()
    """Classes of ops, as `engine.routing` names them."""
    languages: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    """Architectures, such as `sm_90`."""
    words: tuple[str, ...] = ()
    """Words and phrases in names of the one form of these ops that the page is about."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page; its name is its path without the suffix, or the folder of a SKILL.md."""

    name: str
    path: str
    head: PageHead
    text: str
    folder: str = ""
    """The user's or the project's folder that it comes from, "" for kopt's own."""

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]


def read(path: Path, root: Path) -> Page:
    """Return the page at `path` below the folder `root`. Raises InputError or OSError."""
    if not path.is_file():
        raise InputError("expected a file", where=str(path))
    if path.stat().st_size > 4 * MAX_PAGE:
        raise InputError(f"expected a page of at most {MAX_PAGE} characters", where=str(path))
    try:
        raw = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(path)) from error
    return parse(raw, path, root)


def parse(raw: str, path: Path, root: Path) -> Page:
    """Return the page with the text `raw`, whether or not `path` exists. Raises InputError."""
    where, is_built_in = path.relative_to(root).as_posix(), root == BUILT_IN
    shown = where if is_built_in else str(path)
    head = _HEAD.match(raw)
    if head is None:
        raise InputError("the page does not begin with a head between two lines `---`", where=shown)
    fields = decode(yaml_document.parse(head[1], shown), PageHead, msgspec.convert)
    fields = msgspec.structs.replace(fields, summary=one_line(fields.summary, 200))
    name = where.removesuffix(".md").removesuffix("/SKILL")
    if name.startswith("hardware/"):
        fields = msgspec.structs.replace(fields, gpus=(path.stem,))
    text = raw[head.end():]
    text = _fill(text, path.stem) if is_built_in else plain(text, len(raw))
    if len(text) > MAX_PAGE:
        raise InputError(f"a page has at most {MAX_PAGE} characters, this one has {len(text)}",
                         where=shown)
    return Page(name=name, path=where, head=fields, text=text, folder="" if is_built_in
                else str(root))


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

    environment = Environment(loader=FileSystemLoader(BUILT_IN), trim_blocks=True,
                              lstrip_blocks=True, undefined=StrictUndefined)
    environment.globals |= {
        "snippet": snippet, "load_ns": datasheets.LOAD_NS, "waves": _waves,
        "archs": {arch.name: arch for arch in datasheets.archs()},
        "card": {card.name: card for card in datasheets.cards()}.__getitem__,
        "cards_of": lambda name: [card for card in datasheets.cards() if card.arch == name]}
    environment.filters["kib"] = lambda size: f"{size / 1024:g} KiB" if size % 2**20 \
        else f"{size / 2**20:g} MiB"
    return environment


def _waves(arch: str, registers: int) -> int:
    """Return how many waves of a SIMD fit if each lane uses so many registers."""
    found = datasheets.find_arch(arch)
    assert found is not None
    return datasheets.resident_warps(found, registers) // datasheets.PARTITIONS


def snippet(name: str) -> str:
    """Return the part of a snippet that pages show, as a fenced block."""
    path = BUILT_IN / "snippets" / name
    shown = re.split(rf"^(?:#|//) {CHECKS}$", path.read_text(encoding="utf-8"), maxsplit=1,
                     flags=re.MULTILINE)[0]
    return f"```{_FENCES[path.suffix]}\n{shown.strip()}\n```"
