"""The parts of an HTML page, and the template that renders them.

Jinja2 escapes everything that it renders, and control characters are removed before: no text from
outside can become markup.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from engine.records.report.charts import Chart
from harness.formats.text import plain

if TYPE_CHECKING:  # only a report loads it
    from jinja2 import Template

LONGEST = 2000
"""Characters of one text; the rest is cut."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The page may load nothing; a browser enforces that even if markup should get through."""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign's speedup with its interval, or `words` where there is none."""

    gain: str = ""
    interval: str = ""
    words: str = ""


class PageTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table; one with a `summary` is folded up under it."""

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    summary: str = ""


class PageSection(msgspec.Struct, frozen=True, kw_only=True):
    """A heading and the content below it, in the order of the fields."""

    heading: str = ""
    charts: Sequence[Chart] = ()
    paragraphs: Sequence[str] = ()
    style: str = ""
    """The class of the paragraphs: note or warning."""
    tables: Sequence[PageTable] = ()
    items: Sequence[str] = ()


def render(title: str, headline: Headline, sections: Sequence[PageSection]) -> str:
    """Return a page as one HTML document that needs no other file."""
    return _template().render(title=title, headline=headline, sections=sections, policy=POLICY)


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        finalize=_printed, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.get_template("page.html.jinja")


def _printed(value: object) -> object:
    """Return what the template prints for a value: harmless text, coordinates to 0.01."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return plain(value, LONGEST) if isinstance(value, str) and not hasattr(value, "__html__") \
        else value
