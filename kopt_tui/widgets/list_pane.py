"""A list whose cursor stays on its row while rows come and go, with a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from textual import events
from textual.message import Message

from kopt_tui.widgets.pane import Pane, matches
from kopt_tui.widgets.tones import Line

Item = TypeVar("Item")


class ListPane(Pane, Generic[Item]):
    """Rows of one kind under a title and an optional line of headings."""

    FOLLOWS = False
    """Whether a cursor on the first row stays on the first row when rows come above it."""
    EMPTY = ""
    """The text of an empty list."""
    FILTERS = True

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self) -> None:
        super().__init__()
        self.items: tuple[Item, ...] = ()
        self.shown: tuple[Item, ...] = ()
        self.cursor = 0
        self._cursor_key = ""

    # What each kind of list defines.

    def key(self, item: Item) -> str:
        """Return what identifies a row for as long as it exists."""
        raise NotImplementedError

    def row(self, item: Item, width: int) -> Line:
        """Return a row's spans for a width in cells."""
        raise NotImplementedError

    def headings(self, width: int) -> Line:
        """Return the line above the rows, empty for none."""
        return ()

    # Contents.

    @property
    def current(self) -> Item | None:
        """Return the item under the cursor."""
        return self.shown[self.cursor] if self.cursor < len(self.shown) else None

    def set_items(self, items: tuple[Item, ...]) -> None:
        """Show these items; a pane whose `height` is auto fits its height to their number."""
        if items == self.items and self._drawn:
            return
        is_resized = len(items) != len(self.items)
        self.items = items
        self._select()
        if is_resized and self.styles.is_auto_height:
            self.refresh(layout=True)

    def set_filter(self, text: str) -> None:
        super().set_filter(text)
        self._select()

    def _select(self) -> None:
        """Put the cursor back on its row after the rows have changed."""
        self.shown = tuple(item for item in self.items if self._matches(item))
        keys = [self.key(item) for item in self.shown]
        follows = self.FOLLOWS and self.cursor == 0
        if self._cursor_key in keys and not follows:
            self.cursor = keys.index(self._cursor_key)
        self.cursor = max(0, min(self.cursor, len(keys) - 1))
        self._cursor_moved()

    def _matches(self, item: Item) -> bool:
        return not self.filter or matches(
            self.filter, "".join(text for text, _ in self.row(item, 400)))

    def _cursor_moved(self) -> None:
        before, item = self._cursor_key, self.current
        if item is not None:
            self._cursor_key = self.key(item)
        height = max(1, self.body_height)
        self.top = max(min(self.top, self.cursor), self.cursor - height + 1)
        self.redraw()
        if self._cursor_key != before:
            self.post_message(self.Moved())

    # Drawing.

    @property
    def body_height(self) -> int:
        return max(0, super().body_height - bool(self.headings(self.size.width)))

    def title_note(self) -> str:
        parts = [self.note] if self.note else []
        if self.filter:
            parts.append(f"/{self.filter} {len(self.shown)} of {len(self.items)}")
        elif len(self.shown) > self.body_height:
            parts.append(f"{self.cursor + 1} of {len(self.shown)}")
        return "  ".join(parts)

    def compose_lines(self, width: int) -> Sequence[Line]:
        """Return a placeholder per row: `frame` composes only the visible ones."""
        return [()] * (len(self.shown) or bool(self.EMPTY))

    def frame(self, width: int) -> list[Line]:
        above = [self._title(width)] if self.TITLE else []
        heading = self.headings(width)
        above += [heading] if heading else []
        end = min(self.top + self.body_height, len(self.lines))
        return above + [self.line(index, width) for index in range(self.top, end)]

    def line(self, index: int, width: int) -> Line:
        """Return a row's line with the mark of the cursor."""
        if not self.shown:
            return ((f" {'no row matches the filter' if self.items else self.EMPTY}", "dim"),)
        row = self.row(self.shown[index], width - 2)
        if index != self.cursor or not self.can_focus:
            return ((" ", "plain"), *row)
        if not self.has_focus:
            return (("▸", "bold"), *row)
        plain = ((text, "reverse bold" if "bold" in tones else "reverse") for text, tones in row)
        return ((" ", "reverse"), *plain, ("", "reverse"))

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return max(1, len(self.shown)) + bool(self.TITLE) + bool(self.headings(width))

    # Moving.

    def move(self, step: int) -> None:
        self.cursor = max(0, min(self.cursor + step, len(self.shown) - 1))
        self._cursor_moved()

    def edge(self, side: int) -> None:
        self.move(side * len(self.shown))

    def on_click(self, event: events.Click) -> None:
        above = bool(self.TITLE) + bool(self.headings(self.size.width))
        index = self.top + event.y - above
        if event.y >= above and index < len(self.shown):
            self.move(index - self.cursor)
            if event.chain == 2:
                self.app.post_message(events.Key("enter", None))
