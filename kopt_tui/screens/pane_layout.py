"""Which panes of a screen are visible: all, one of a deck on a narrow terminal, or one zoomed."""

from __future__ import annotations

from textual.screen import Screen

from kopt_tui.widgets.bars import KeyBar
from kopt_tui.widgets.pane import Column, Pane

WIDE = 110
"""Columns from which panes stand side by side instead of one at a time."""


class PaneLayout:
    """The visible panes of one screen.

    On a narrow terminal only one pane of the `deck` is visible: the one that last had the focus.
    """

    def __init__(self, screen: Screen[None]) -> None:
        self._screen = screen
        self.deck: tuple[Pane, ...] = ()
        self.zoomed = False
        self._front: Pane | None = None

    @property
    def panes(self) -> list[Pane]:
        """Return the panes that can have the focus, in the order of the screen."""
        panes = [pane for pane in self._screen.query(Pane)
                 if pane.can_focus and pane not in self.deck and not isinstance(pane, KeyBar)]
        return panes + list(self.deck)

    @property
    def focused(self) -> Pane | None:
        """Return the pane with the focus."""
        return self._screen.focused if isinstance(self._screen.focused, Pane) else None

    def bring_to_front(self, pane: object) -> None:
        """Make a pane the visible one of its deck."""
        if isinstance(pane, Pane) and pane in self.deck:
            self._front = pane

    def place(self) -> None:
        """Show the panes that fit."""
        deck, narrow = self.deck, self._screen.size.width < WIDE
        if self._front not in deck:
            self._front = deck[0] if deck else None
        for pane in self.panes:
            in_deck = narrow and pane in deck
            pane.display = pane is self.focused if self.zoomed else \
                not in_deck or pane is self._front
            tabs = tuple(other.TITLE for other in deck) if in_deck else ()
            if tabs != pane.tabs:
                pane.tabs = tabs
                pane.redraw()
        for column in self._screen.query(Column):
            column.display = any(pane.display for pane in column.query(Pane))
        self._screen.set_class(self.zoomed, "-zoomed")

    def focus_next(self, step: int) -> None:
        """Give the focus to the next pane and undo the zoom."""
        panes = self.panes
        if not panes:
            return
        at = panes.index(self.focused) if self.focused in panes else -step
        target = panes[(at + step) % len(panes)]
        self.bring_to_front(target)
        self.zoomed = False
        self.place()
        target.display = True
        self._screen.set_focus(target)

    def toggle_zoom(self) -> None:
        """Give the whole screen to the pane with the focus, or to all panes again."""
        self.zoomed = not self.zoomed and self.focused is not None
        self.place()
