"""KoptScreen: bars, panes, keys and the drawing of snapshots, shared by all screens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias, cast, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from kopt_tui.control import ControlRequest
from kopt_tui.snapshot.device_sampler import Sampler
from kopt_tui.snapshot.snapshot import AttemptRef, DeviceSnapshot, Focus, Snapshot, WaitingRow
from kopt_tui.widgets import keys
from kopt_tui.widgets.bars import KeyBar, TopBar
from kopt_tui.widgets.pane import Column, InCurrentSize, Pane

WIDE = 110
"""The least width, in cells, at which a deck's panes are all visible instead of one."""


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
        """Return the panes that can have the focus, in the screen's order, but the deck's last."""
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
        """Show the focused pane if zoomed, else all; on a narrow terminal only one of the deck."""
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
        """Give the focus to the pane `step` panes further, and undo the zoom."""
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
        """Show only the pane with the focus, or all panes again."""
        self.zoomed = not self.zoomed and self.focused is not None
        self.place()


Body: TypeAlias = Iterable[Widget]
NO_CAMPAIGN = "no campaign is chosen: press 1 for the list"


class Requests(Protocol):
    """Requests to engines, as screens send them; `sent_requests.SentRequests` implements it."""

    def refuses(self, verb: str) -> bool: ...
    def confirm(self, request: ControlRequest, waiting: WaitingRow | None = None) -> None: ...
    def measure_again(self, campaign: str, candidate: str) -> None: ...


class DashboardApp(Protocol):
    """The app as its screens see it; `dashboard.Dashboard` implements it."""

    campaign: str
    snapshot: Snapshot
    devices: DeviceSnapshot
    sampler: Sampler
    readonly: bool
    workspace: Path

    @property
    def requests(self) -> Requests: ...
    @property
    def session(self) -> str: ...
    @property
    def current_mode(self) -> str: ...
    def switch_mode(self, mode: str) -> object: ...
    def look_at(self, focus: Focus) -> None: ...
    async def perform(self, key: keys.Key | None) -> None: ...
    def open_campaign(self, campaign: str) -> None: ...
    def open_candidate(self, campaign: str, candidate: str) -> None: ...
    def open_transcript(self, campaign: str, *, attempt: AttemptRef | None = None,
                        candidate: str = "") -> None: ...


@runtime_checkable
class InFront(Protocol):
    """A screen or dialog; while it is in front, it gets the snapshots and what is typed."""

    def show(self, snapshot: Snapshot) -> None: ...
    async def take_input(self, event: events.Key | events.Paste) -> None: ...


class KoptScreen(InCurrentSize[None]):
    """Panes between the top bar and the key bar."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012
    SCOPE: ClassVar[keys.Scope]

    def __init__(self) -> None:
        super().__init__()
        self.pane_layout = PaneLayout(self)

    # What each screen defines.

    def body(self) -> Body:
        """Return the widgets between the bars."""
        raise NotImplementedError

    def draw(self, snapshot: Snapshot) -> None:
        """Hand each pane its part of a snapshot."""
        raise NotImplementedError

    def focus_of_feed(self) -> Focus:
        """Return what the feed must read for this screen."""
        return Focus(campaign=self.dashboard.campaign)

    def shows_devices(self, snapshot: Snapshot) -> bool:
        """Return whether the screen shows devices, so that they must be queried."""
        return False

    def draw_devices(self, devices: DeviceSnapshot) -> None:
        """Show the devices of this machine."""

    def labels(self) -> dict[str, str]:
        """Return labels that replace those of the key table, "" to hide an action's key."""
        return {}

    def action_open(self) -> None:
        """Open what is under the cursor."""

    # Frame.

    @property
    def dashboard(self) -> DashboardApp:
        """Return the app with what screens share: snapshot, chosen campaign, requests."""
        return cast(DashboardApp, self.app)

    @property
    def pane(self) -> Pane | None:
        return self.pane_layout.focused

    def compose(self) -> ComposeResult:
        mode = self.SCOPE if self.SCOPE in self.app.MODES else self.dashboard.current_mode
        self.topbar = TopBar(mode, self.dashboard.session)
        self.keybar = KeyBar(keys.hints(self.SCOPE, readonly=self.dashboard.readonly))
        yield self.topbar
        yield from self.body()
        yield self.keybar

    def on_mount(self) -> None:
        for pane in self.pane_layout.deck:
            pane.add_class("deck")
        self._place_panes()
        if panes := self.pane_layout.panes:
            panes[0].focus()

    def on_screen_resume(self) -> None:
        self.refocus_feed()
        self.show(self.dashboard.snapshot)
        self.draw_devices(self.dashboard.devices)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._place_panes)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.pane_layout.bring_to_front(event.widget)
        self.offer_keys()

    def show(self, snapshot: Snapshot) -> None:
        """Draw a snapshot, unless it is the empty one of the start."""
        if not self.is_mounted:
            return
        if snapshot.at or snapshot.problem:
            self.topbar.set_content(len(snapshot.waiting))
            self.keybar.set_content(snapshot.problem)
        if snapshot.at:
            self.draw(snapshot)
            self.offer_keys()
            self._watch_devices()

    def offer_keys(self) -> None:
        """Show the keys that work for what is under the cursor."""
        self.keybar.offer(self._hints())

    def refocus_feed(self) -> None:
        """Tell the feed what this screen needs now."""
        self.dashboard.look_at(self.focus_of_feed())

    def _hints(self) -> tuple[tuple[str, str], ...]:
        return keys.hints(self.SCOPE, readonly=self.dashboard.readonly, labels=self.labels())

    def _place_panes(self) -> None:
        self.pane_layout.place()
        self._watch_devices()

    def _watch_devices(self) -> None:
        """Have devices queried only while they are visible."""
        snapshot = self.dashboard.snapshot
        self.dashboard.sampler.watch(snapshot.at > 0 and self.shows_devices(snapshot))

    # Actions.

    async def take_input(self, event: events.Key | events.Paste) -> None:
        """Do what a key means by the table of keys; while a filter is typed, edit the filter."""
        if not self.keybar.takes(event) and isinstance(event, events.Key):
            await self.dashboard.perform(keys.bound(event.key, self.SCOPE))

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
        self.pane_layout.focus_next(step)
        self._watch_devices()

    def action_zoom(self) -> None:
        self.pane_layout.toggle_zoom()
        self._watch_devices()

    def action_filter(self) -> None:
        """Let a person type a text that the rows of the pane must contain."""
        pane = self.pane
        if pane is not None and pane.FILTERS:
            self.keybar.ask(pane.filter, pane.set_filter, pane.FILTER_HELP)
        else:
            self.keybar.say("this pane has no rows to filter")

    def action_back(self) -> None:
        """Clear the filter, else undo the zoom, else leave the screen."""
        pane = self.pane
        if pane is not None and pane.filter:
            pane.set_filter("")
        elif self.pane_layout.zoomed:
            self.action_zoom()
        elif len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        elif self.dashboard.current_mode != "campaigns":
            self.dashboard.switch_mode("campaigns")
