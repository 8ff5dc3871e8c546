"""Panes stacked in a column."""

from __future__ import annotations

from textual.containers import Container


class Column(Container):
    """A vertical stack of panes; it takes no room while none of them is visible."""

    DEFAULT_CSS = "Column { layout: vertical; width: 1fr; height: 1fr; }"
