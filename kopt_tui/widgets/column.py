"""Panes stacked in a column."""

from __future__ import annotations

from textual.containers import Container


class Column(Container):
    """Panes under each other; without a visible pane it takes no room."""

    DEFAULT_CSS = "Column { layout: vertical; width: 1fr; height: 1fr; }"
