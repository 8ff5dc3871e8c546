"""Pane: a titled block of lines that repaints only the cells that changed.

Every panel of the dashboard is a pane. It holds spans of plain text and no child widgets, so that
the progress of one worker costs a few dozen bytes over ssh.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Region, Size
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from kopt_tui.snapshot.snapshot import Snapshot
from kopt_tui.widgets.tones import Line, Span, rich_style

Content = TypeVar("Content")
Result = TypeVar("Result")


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return a text in exactly `width` cells, clipped with an ellipsis or padded."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    pad = " " * (width - length)
    return pad + text if right else text + pad


def fit_name(name: str, width: int) -> str:
    """Return a name in exactly `width` cells, clipped in its middle or padded.

    Names of campaigns on one target differ only at their ends.
    """
    end = max(width, 0) // 3
    if end and cell_len(name) > width:
        return f"{fit(name, width - end)}{name[-end:]}"
    return fit(name, width)


def wrapped_under(head: Line, text: str, width: int, tones: str = "plain") -> list[Line]:
    """Return a text after its head, further lines below the text; no line for an empty text."""
    indent = sum(cell_len(part) for part, _ in head)
    rows = textwrap.wrap(text, max(20, width - indent - 1))
    below: Line = ((" " * indent, "plain"),)
    return [(*(below if number else head), (row, tones)) for number, row in enumerate(rows)]


def matches(filter: str, text: str) -> bool:
    """Return whether a text contains the filter, or does not where the filter starts with "!"."""
    part = filter.casefold().removeprefix("!")
    return not part or (part in text.casefold()) != filter.startswith("!")


def changed_cells(old: Strip, new: Strip) -> tuple[int, int] | None:
    """Return the half-open range of columns in which two drawn lines differ, None if nowhere."""
    if old == new:
        return None
    before, after = _cells(old), _cells(new)
    if before == after:
        return None
    shared = min(len(before), len(after))
    first = next((i for i in range(shared) if before[i] != after[i]), shared)
    last = max(len(before), len(after))
    if len(before) == len(after):
        last = next(i for i in range(shared, 0, -1) if before[i - 1] != after[i - 1])
    return first, last


def _cells(strip: Strip) -> list[tuple[str, Style | None]]:
    cells: list[tuple[str, Style | None]] = []
    for text, style, _ in strip:
        if text.isascii():
            cells += [(char, style) for char in text]
            continue
        for char in text:
            width = cell_len(char)
            if not width and cells:
                cells[-1] = (cells[-1][0] + char, style)
                continue
            cells.append((char, style))
            cells.extend([("", style)] * (width - 1))
    return cells


class Pane(Widget, can_focus=True):
    """A block of lines under a title, scrolled by whole lines."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "Pane { height: 1fr; width: 1fr; }"
    TITLE = ""
    FILTERS = False
    FILTER_HELP = "enter keeps the filter, esc clears it, !text inverts it"

    def __init__(self) -> None:
        super().__init__()
        self.lines: Sequence[Line] = ()
        self.note = ""
        self.tabs: tuple[str, ...] = ()
        self.filter = ""
        self.top = 0
        self._drawn: list[Strip] = []

    # What each kind of pane defines.

    def compose_lines(self, width: int) -> Sequence[Line]:
        """Return all lines of the body for a width in cells."""
        return ()

    def title_note(self) -> str:
        """Return the text after the name in the title."""
        return self.note

    def set_filter(self, text: str) -> None:
        """Show only rows that contain a text, or that do not where it starts with "!"."""
        self.filter = text.strip()

    # Drawing.

    @property
    def body_height(self) -> int:
        """Return how many lines of the body fit."""
        return max(0, self.size.height - bool(self.TITLE))

    def redraw(self) -> None:
        """Compose the lines again and repaint the cells that differ from the drawn ones."""
        if not self.is_attached or not self.size.width:
            return
        width = self.size.width
        self.lines = self.compose_lines(width)
        self.top = max(0, min(self.top, len(self.lines) - self.body_height))
        new = self._strips(width)
        old, self._drawn = self._drawn, new
        if len(old) != len(new):
            self.refresh()
            return
        regions = []
        for y, (before, after) in enumerate(zip(old, new, strict=True)):
            cells = changed_cells(before, after)
            if cells is not None:
                regions.append(Region(cells[0], y, cells[1] - cells[0], 1))
        if regions:
            self.refresh(*regions)

    def frame(self, width: int) -> list[Line]:
        """Return the visible lines: the title and the part of the body that is scrolled to."""
        above = [self._title(width)] if self.TITLE else []
        return above + list(self.lines[self.top: self.top + self.body_height])

    def _strips(self, width: int) -> list[Strip]:
        strips = [self._strip(line, width) for line in self.frame(width)[: self.size.height]]
        blank = self._strip((), width)
        return strips + [blank] * (self.size.height - len(strips))

    def _title(self, width: int) -> Line:
        rule, tones = ("━", "bold info") if self.has_focus else ("─", "dim")
        note = self.title_note()
        parts: list[Span] = [(f"{rule} ", tones)]
        for name in self.tabs or (self.TITLE,):
            if len(parts) > 1:
                parts.append(("· ", "dim"))
            style = "bold info" if self.has_focus else "bold"
            parts.append((f"{name} ", style if name == self.TITLE else "dim"))
        if note:
            parts.append((f"{rule} {note} " if self.tabs else f"{note} ", "dim"))
        room = width - sum(cell_len(text) for text, _ in parts)
        return (*parts, (rule * room, tones))

    def _strip(self, line: Line, width: int) -> Strip:
        segments = [Segment("".join(text for text, _ in spans), rich_style(self.app, tones))
                    for tones, spans in groupby(line, key=itemgetter(1))]
        strip = Strip([part for part in segments if part.text])
        fill = rich_style(self.app, line[-1][1]) if line and not line[-1][0] else Style.null()
        if strip.cell_length > width:
            more = Segment("…", fill + Style(dim=True))
            strip = Strip.join([strip.crop(0, width - 1), Strip([more])])
        return strip.adjust_cell_length(width, fill)

    def render_line(self, y: int) -> Strip:
        """Return one drawn line; Textual calls this for the lines that it repaints."""
        if y < len(self._drawn) and self._drawn[y].cell_length == self.size.width:
            return self._drawn[y]
        return Strip.blank(self.size.width, Style())

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the height of all lines, for panes whose height is `auto`."""
        return len(self.compose_lines(width)) + bool(self.TITLE)

    def forget_drawn(self) -> None:
        """Draw everything again, after a change of size or theme."""
        self._drawn = []
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        self.forget_drawn()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._drawn:
            self.forget_drawn()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()

    # Moving.

    def move(self, step: int) -> None:
        """Scroll by lines."""
        self.top += step
        self.redraw()

    def page(self, step: int) -> None:
        """Scroll by pages."""
        self.move(step * max(1, self.body_height - 1))

    def edge(self, side: int) -> None:
        """Scroll to the first or to the last line."""
        self.top = 0 if side < 0 else len(self.lines)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-1)


class ContentPane(Pane, Generic[Content]):
    """A pane that draws one value; each subclass sets the initial value."""

    content: Content

    def set_content(self, content: Content) -> None:
        """Show this value, and do nothing if it is shown already."""
        if content != self.content or not self._drawn:
            self.content = content
            self.redraw()


class InCurrentSize(Screen[Result]):
    """A screen that ignores changes to a size which the terminal no longer has.

    Textual repeats each change of size to the screen. Two at once would be repeated alternately
    without end.
    """

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Resize) or event.size == self.app.size:
            await super().on_event(event)


class PaneDialog(ModalScreen[Result], InCurrentSize[Result]):
    """A dialog of one pane, over the screen that opened it."""

    pane: Pane

    async def take_input(self, event: events.Key | events.Paste) -> None:
        """React to a key or a paste."""
        raise NotImplementedError

    def show(self, snapshot: Snapshot) -> None:
        """Follow the journal while the dialog is in front."""

    def compose(self) -> ComposeResult:
        yield Container(self.pane, id="dialog")

    def on_mount(self) -> None:
        self.pane.focus()


class Column(Container):
    """A vertical stack of panes; `PaneLayout` hides it while none of them is visible."""

    DEFAULT_CSS = "Column { layout: vertical; width: 1fr; height: 1fr; }"
