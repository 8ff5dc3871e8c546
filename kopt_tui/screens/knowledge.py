"""The Knowledge screen: what kopt, its user and the project know of ops, hardware and languages."""

from __future__ import annotations

import re
from pathlib import Path

from textual.containers import Container

from engine.knowledge import page_library
from engine.knowledge.page_files import Page
from kopt_tui.screens.base import Body, KoptScreen
from kopt_tui.snapshot.snapshot import Snapshot
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import Column, ContentPane, fit, matches
from kopt_tui.widgets.report_pane import markdown_lines
from kopt_tui.widgets.tones import Line

_STARTS = re.compile(r"\s*(?:[-*] |[#|>]|```|\d+\. |$)")
"""Lines that do not continue the line before them."""


class PageList(ListPane[Page]):
    """One line per page; the filter searches its text too."""

    TITLE = "pages"
    EMPTY = "reading the pages"
    FILTER_HELP = "every word must be in the page; enter keeps the filter, esc clears it"

    def key(self, item: Page) -> str:
        return item.name

    def row(self, item: Page, width: int) -> Line:
        name = min(33, width // 2)
        return ((f"{fit(item.name, name)} ", "accent" if item.folder else "bold"),
                (item.head.summary, "plain"))

    def _matches(self, item: Page) -> bool:
        text = f"{item.name} {item.head.summary} {item.text}"
        return all(matches(word, text) for word in self.filter.split())


class PagePane(ContentPane[Page | None]):
    """The page under the cursor."""

    TITLE = "page"
    content: Page | None = None

    def title_note(self) -> str:
        return "" if self.content is None else \
            "  ".join(filter(None, (self.content.name, self.content.folder)))

    def compose_lines(self, width: int) -> list[Line]:
        return [] if self.content is None else \
            markdown_lines(_joined(self.content.text), width - 1, wraps=True)


class KnowledgeScreen(KoptScreen):
    """The list beside the page, or before it on a narrow terminal."""

    SCOPE = "knowledge"
    CSS = """
    KnowledgeScreen.-wide #panes { layout: horizontal; height: 1fr; }
    KnowledgeScreen.-wide #side { margin: 0 0 0 2; width: 60%; }
    """

    def __init__(self, project: Path) -> None:
        super().__init__()
        self.project = project

    def body(self) -> Body:
        self.list, self.page = PageList(), PagePane()
        self.pane_layout.deck = (self.list, self.page)
        return [Container(Column(self.list), Column(self.page, id="side"), id="panes")]

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(lambda: self.call_later(
            self._show_pages, page_library.load(self.project)), thread=True)

    def draw(self, snapshot: Snapshot) -> None:
        """Draw nothing: pages come from files, not from the journal."""

    def _show_pages(self, library: page_library.Library) -> None:
        if not self.is_mounted:
            return
        self.list.set_items(library.pages)
        self.list.redraw()
        if library.problems:
            self.keybar.say(f"! {library.problems[0]}", "warn")

    def on_list_pane_moved(self) -> None:
        self.page.edge(-1)
        self.page.set_content(self.list.current)

    def action_open(self) -> None:
        if self.pane is self.list:
            self.action_pane(1)

    def action_back(self) -> None:
        """Go back to the list, and from there as from any screen."""
        if self.pane is self.page and not self.pane_layout.zoomed:
            self.action_pane(-1)
        else:
            super().action_back()


def _joined(text: str) -> str:
    """Return Markdown with each paragraph and item as one line, so that it fits any width."""
    lines: list[str] = []
    in_code = False
    for line in text.expandtabs(4).splitlines():
        in_code ^= line.startswith("```")
        if in_code or not lines or _STARTS.match(line) or not lines[-1] \
                or lines[-1].startswith(("#", "|", "```")):
            lines.append(line)
        else:
            lines[-1] += f" {line.strip()}"
    return "\n".join(lines)
