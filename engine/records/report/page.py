"""The parts of a report, and the templates that render them as HTML or as Markdown.

The templates escape everything that they render, and control characters are removed before: no
text from outside can become markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from engine.records.report.charts import Chart
from engine.records.templates import environment, render_markdown
from harness.formats.text import one_line, plain

LONGEST, LONGEST_LINE = 2000, 600
"""Most characters of one text in HTML and in Markdown; the rest is cut."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The page may load nothing; a browser enforces that even if markup should get through."""
MARKUP = re.compile(
    r"([\\`*{}<>|~]|^\[|^#(?=#*(?: |$))|\](?=[(\[])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""What may be Markdown; [ and # only where a text starts, ] where a link ends."""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign's speedup with its interval, or `words` where there is none."""

    gain: str = ""
    interval: str = ""
    words: str = ""


class PageTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table; with a `summary` it is folded below that, without `head` a row is name and value."""

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


def render_html(title: str, headline: Headline, sections: Sequence[PageSection]) -> str:
    """Return a page as one HTML document that needs no other file."""
    shown = [section for section in sections if section.has_text or section.chart]
    return environment(_html_text).get_template("page.html.jinja").render(
        title=title, headline=headline, sections=shown, policy=POLICY)


def render_report(title: str, headline: Headline, sections: Sequence[PageSection]) -> str:
    """Return a page as Markdown."""
    shown = [section for section in sections if section.has_text]
    return render_markdown("page", _markdown_text, {
        "title": title, "headline": headline, "sections": shown, "code": _code})


def _html_text(text: str) -> str:
    return plain(text, LONGEST)


def _markdown_text(text: str) -> Markup:
    return Markup(MARKUP.sub(r"\\\1", one_line(text, LONGEST_LINE)))


def _code(text: str) -> Markup:
    return Markup("`" + one_line(text.replace("`", "")) + "`")
