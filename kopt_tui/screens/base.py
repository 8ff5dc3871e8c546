"""What all screens share: bars, panes that are moved through, zoom, filter, drawing a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from kopt_tui.screens.dashboard_app import DashboardApp
from kopt_tui.snapshot.snapshot import DeviceSnapshot, Focus, Snapshot
from kopt_tui.widgets import keys
from kopt_tui.widgets.bars import KeyBar, TopBar
from kopt_tui.widgets.column import Column
from kopt_tui.widgets.pane import Pane

WIDE = 110
"""Columns from which panes stand side by side instead of taking turns."""


def bindings(scope: keys.Scope) -> list[BindingType]:
    """Return the bindings of a scope from the table of keys."""
    return [Binding(key.keys, key.action, key.label, show=False) for key in keys.of(scope)]


class KoptScreen(Screen[None]):
    """A screen made of panes between the top bar and the key bar.

    The panes of its `deck` take turns on a narrow terminal: the one that had the focus last is the
    one to see.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012
    SCOPE: ClassVar[keys.Scope]
    MODE: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.zoomed = False
        self.deck: tuple[Pane, ...] = ()
        self._front: Pane | None = None

    # What a kind of screen decides.

    def body(self) -> Iterable[Widget]:
        """Return the widgets between the bars."""
        raise NotImplementedError

    def draw(self, snapshot: Snapshot) -> None:
        """Give each pane its part of a snapshot."""
        raise NotImplementedError

    def wants(self) -> Focus:
        """Return what the feed has to read for this screen."""
        return Focus(campaign=self.dashboard.campaign)

    def wants_devices(self, snapshot: Snapshot) -> bool:
        """Return whether devices are shown and worth asking."""
        return False

    def draw_devices(self, seen: DeviceSnapshot) -> None:
        """Show the devices of this machine."""

    # Frame.

    @property
    def dashboard(self) -> DashboardApp:
        """Return the app with what screens share: snapshot, chosen campaign, requests."""
        return cast(DashboardApp, self.app)

    @property
    def keybar(self) -> KeyBar:
        return self.query_one(KeyBar)

    def compose(self) -> ComposeResult:
        yield TopBar(self.MODE or self.dashboard.current_mode, self.dashboard.session)
        yield from self.body()
        yield KeyBar(keys.hints(self.SCOPE, readonly=self.dashboard.readonly))

    def on_mount(self) -> None:
        for pane in self.deck:
            pane.add_class("deck")
        self.place_panes()
        if self.panes:
            self.panes[0].focus()

    def on_screen_resume(self) -> None:
        self.refocus()
        self.show(self.dashboard.snapshot)
        self.draw_devices(self.dashboard.devices)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.place_panes)

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot, if there has been one."""
        if not self.is_mounted:
            return
        if snapshot.at or snapshot.problem:
            self.query_one(TopBar).set_waiting(len(snapshot.waiting))
            self.keybar.set_problem(snapshot.problem)
        if snapshot.at:
            self.draw(snapshot)
            self.watch_devices()

    def refocus(self) -> None:
        """Tell the feed what this screen needs now."""
        self.dashboard.look_at(self.wants())

    # Panes.

    @property
    def panes(self) -> list[Pane]:
        """Return the panes that can have the focus, in the order of the screen."""
        found = [pane for pane in self.query(Pane) if pane.can_focus and pane is not self.keybar]
        return [pane for pane in found if pane not in self.deck] + list(self.deck)

    @property
    def pane(self) -> Pane | None:
        """Return the pane with the focus."""
        return self.focused if isinstance(self.focused, Pane) else None

    def place_panes(self) -> None:
        """Show the panes that fit: all of a wide screen, one of a deck, or the zoomed one."""
        deck, narrow = self.deck, self.size.width < WIDE
        if self._front not in deck:
            self._front = deck[0] if deck else None
        for pane in self.panes:
            if self.zoomed:
                pane.display = pane is self.pane
            else:
                pane.display = not (narrow and pane in deck) or pane is self._front
            tabs = tuple(other.TITLE for other in deck) if narrow and pane in deck else ()
            if tabs != pane.tabs:
                pane.tabs = tabs
                pane.redraw()
        for column in self.query(Column):
            column.display = any(pane.display for pane in column.query(Pane))
        self.set_class(self.zoomed, "-zoomed")
        self.watch_devices()

    def watch_devices(self) -> None:
        """Have devices asked only while they are in sight."""
        snapshot = self.dashboard.snapshot
        self.dashboard.sampler.watch(snapshot.at > 0 and self.wants_devices(snapshot))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget in self.deck:
            self._front = event.widget

    # Actions.

    def action_move(self, step: int) -> None:
        if self.pane:
            self.pane.move(step)

    def action_page(self, step: int) -> None:
        if self.pane:
            self.pane.page(step)

    def action_edge(self, side: int) -> None:
        if self.pane:
            self.pane.edge(side)

    def action_pane(self, step: int) -> None:
        """Give the focus to the next pane, bringing it to the front of its deck."""
        panes = self.panes
        if not panes:
            return
        at = panes.index(self.pane) if self.pane in panes else -step
        target = panes[(at + step) % len(panes)]
        if target in self.deck:
            self._front = target
        if self.zoomed:
            self.zoomed = False
        self.place_panes()
        target.display = True
        self.set_focus(target)

    def action_zoom(self) -> None:
        """Give the pane with the focus the whole screen, or take it back."""
        self.zoomed = not self.zoomed and self.pane is not None
        self.place_panes()

    def action_filter(self) -> None:
        """Type a text that rows of the pane must contain."""
        pane = self.pane
        if pane is not None and pane.FILTERS:
            self.keybar.ask(pane.wanted, pane.set_filter, lambda: self.set_focus(pane))
        else:
            self.keybar.say("this pane has no rows to filter")

    def action_back(self) -> None:
        """Undo one thing: the filter, the zoom, then the screen."""
        pane = self.pane
        if pane is not None and pane.wanted:
            pane.set_filter("")
        elif self.zoomed:
            self.action_zoom()
        else:
            self.leave()

    def leave(self) -> None:
        """Go to the screen that this one came from."""
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        elif self.dashboard.current_mode != "campaigns":
            self.dashboard.switch_mode("campaigns")

    def on_key(self, event: events.Key) -> None:
        """A message stays until the next key."""
        self.keybar.hush()
