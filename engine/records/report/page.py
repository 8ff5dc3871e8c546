"""The parts of a report, and the templates that render them as HTML or as Markdown.

The templates escape everything that they render, and control characters are removed before: no
text from outside can become markup.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from engine.records.report.charts import Chart
from harness.formats.text import plain

if TYPE_CHECKING:  # only a report loads it
    from jinja2 import Template

LONGEST, LONGEST_LINE = 2000, 600
"""Characters of one text on a page and in Markdown; the rest is cut."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The page may load nothing; a browser enforces that even if markup should get through."""
MARKUP = re.compile(r"([\\`*{}<>#|~]|^\[|\](?=[(\[])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""What may be Markdown: a bracket that starts a text or ends a link's, an underscore beside a word.
"""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign's speedup with its interval, or `words` where there is none."""

    gain: str = ""
    interval: str = ""
    words: str = ""


class PageTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table; one with a `summary` is folded up under it, one without `head` has names and values.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    summary: str = ""


class PageSection(msgspec.Struct, frozen=True, kw_only=True):
    """A heading and the content below it, in the order of the fields; Markdown has no chart."""

    heading: str = ""
    chart: Chart | None = None
    paragraphs: Sequence[str] = ()
    style: str = ""
    """The class of the paragraphs: note or warning."""
    tables: Sequence[PageTable] = ()
    items: Sequence[str] = ()

    @property
    def has_text(self) -> bool:
        return bool(self.paragraphs or self.items or any(part.rows for part in self.tables))


def render(title: str, headline: Headline, sections: Sequence[PageSection], *,
           markdown: bool = False) -> str:
    """Return a page as one HTML document that needs no other file, or as Markdown."""
    shown = [section for section in sections
             if section.has_text or (section.chart and not markdown)]
    text = _template(markdown).render(title=title, headline=headline, sections=shown,
                                      policy=POLICY)
    return re.sub(r"\n{3,}", "\n\n", text.rstrip() + "\n") if markdown else text


@functools.cache
def _template(markdown: bool) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def print_markdown(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return Markup(MARKUP.sub(r"\\\1", " ".join(plain(value, LONGEST_LINE).split())))

    def print_html(value: object) -> object:
        """Return harmless text, and coordinates to 0.01."""
        if isinstance(value, float):
            return f"{value:.2f}".rstrip("0").rstrip(".")
        return plain(value, LONGEST) if isinstance(value, str) and not isinstance(value, Markup) \
            else value

    def code(text: str) -> Markup:
        return Markup("`" + " ".join(plain(text).replace("`", "").split()) + "`")

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        finalize=print_markdown if markdown else print_html, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True)
    environment.filters["code"] = code
    return environment.get_template("page.md.jinja" if markdown else "page.html.jinja")
