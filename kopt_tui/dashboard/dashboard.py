"""The dashboard's app: its modes, and the state that screens share."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import structs
from textual import constants, events
from textual.app import App
from textual.driver import Driver
from textual.reactive import Reactive
from textual.screen import Screen

from kopt_tui.dashboard.sent_requests import SentRequests
from kopt_tui.screens.base import InFront, KoptScreen
from kopt_tui.screens.campaigns import CAMPAIGNS_CSS, CampaignsScreen
from kopt_tui.snapshot.device_sampler import Sampler
from kopt_tui.snapshot.feed import Feed
from kopt_tui.snapshot.snapshot import AttemptRef, DeviceSnapshot, Focus, Snapshot
from kopt_tui.widgets import keys
from kopt_tui.widgets.keys import Key
from kopt_tui.widgets.tones import KOPT_THEME

if TYPE_CHECKING:  # start-up time
    from engine.run.engine import Engine


def _screen(mode: str) -> Callable[[], Screen[None]]:
    """Return a function that makes a mode's screen; its module is loaded when first entered."""
    def make() -> Screen[None]:
        module = import_module(f"kopt_tui.screens.{mode}")
        screen: Screen[None] = getattr(module, f"{mode.capitalize()}Screen")()
        return screen
    return make


class Dashboard(App[None]):
    """Draws snapshots of a workspace; everything slow happens on other threads."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    TITLE = "kopt"
    CSS = CAMPAIGNS_CSS
    theme = Reactive(KOPT_THEME.name)
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        **{mode: _screen(mode) for mode in keys.MODE_NAMES}, "campaigns": CampaignsScreen}
    DEFAULT_MODE = "campaigns"

    def __init__(self, workspace: Path, *, readonly: bool = False, campaign: str = "",
                 engine: Engine | None = None, feed: Feed | None = None,
                 sampler: Sampler | None = None,
                 on_painted: Callable[[], None] = lambda: None) -> None:
        if campaign:
            self.DEFAULT_MODE = "campaign"  # type: ignore[misc]
        super().__init__()
        self.workspace = workspace
        self.readonly = readonly
        self.engine = engine
        self.campaign = campaign
        self.snapshot = self._delivered = Snapshot()
        self.devices = DeviceSnapshot()
        self.feed = feed or Feed(workspace, self.deliver, focus=Focus(campaign))
        self.sampler = sampler or Sampler(self.deliver_devices)
        self.requests = SentRequests(self)
        self.on_painted = on_painted
        self.animation_level = "none"

    @property
    def session(self) -> str:
        """Return the kind of this session, for the top bar."""
        return "read-only" if self.readonly else "engine inside" if self.engine else ""

    def get_driver_class(self) -> type[Driver]:
        if constants.DRIVER is not None:
            return super().get_driver_class()
        from kopt_tui.dashboard.tolerant_driver import TolerantDriver

        return TolerantDriver

    def _handle_exception(self, error: Exception) -> None:
        """End because of a fault of the dashboard itself, which `launch` reports in a line.

        Textual's own method would fill the terminal with a traceback and the values of locals.
        """
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    @property
    def failure(self) -> Exception | None:
        """Return the fault that ended the app, None if a person left it."""
        return self._exception

    def on_mount(self) -> None:
        self.sampler.start()
        self.call_after_refresh(self._first_painted)

    def _first_painted(self) -> None:
        if not self.feed.is_alive():
            self.feed.start()
        self.on_painted()

    def on_unmount(self) -> None:
        self.feed.stop()
        self.sampler.stop()

    @property
    def front(self) -> Screen[Any] | None:
        """Return the screen in front, None while the app closes."""
        return self.screen_stack[-1] if self.screen_stack else None

    # Snapshots and devices, from their threads to the screen in front.

    def deliver(self, snapshot: Snapshot) -> None:
        """Hand over a snapshot; the feed's thread calls this."""
        self._delivered = snapshot
        self.call_later(self._show_delivered)

    def deliver_devices(self, devices: DeviceSnapshot) -> None:
        """Hand over devices; the sampler's thread calls this."""
        self.call_later(self._show_devices, devices)

    def _show_delivered(self) -> None:
        """Show the newest snapshot; older ones that were not yet shown are skipped."""
        if self.snapshot is self._delivered:
            return
        self.snapshot = self._delivered
        if not self.campaign and self.snapshot.campaigns:
            self.campaign = self.snapshot.campaigns[0].id
        if isinstance(self.front, InFront):
            self.front.show(self.snapshot)
        self.requests.report_answers()

    def _show_devices(self, devices: DeviceSnapshot) -> None:
        self.devices = devices
        if isinstance(self.front, KoptScreen):
            self.front.draw_devices(self.devices)

    def look_at(self, focus: Focus) -> None:
        """Tell the feed what the screen in front shows."""
        self.feed.look_at(structs.replace(focus, requested=self.requests.campaigns))

    # Keys, and opening screens.

    async def on_event(self, event: events.Event) -> None:
        """Pass a key or a paste to the screen that is in front when the event is handled.

        Keys are handled here one after another, not by Textual's bindings: those let several keys
        reach one screen before the first key has opened or closed another screen.
        """
        front = self.front
        if isinstance(event, events.Key | events.Paste) and isinstance(front, InFront):
            await front.take_input(event)
        elif front is not None or not isinstance(event, events.InputEvent | events.Paste):
            await super().on_event(event)

    async def perform(self, key: Key | None) -> None:
        """Do what a key of the table stands for, on the screen in front."""
        if key is not None:
            await self.run_action(key.action, self if "app" in key.scopes else self.screen)

    def action_mode(self, name: str) -> None:
        self.switch_mode(name)

    def open_campaign(self, campaign: str) -> None:
        """Show a campaign in Campaign mode."""
        self.campaign = campaign
        if self.current_mode == "campaign" and isinstance(self.screen, KoptScreen):
            self.screen.refocus_feed()
        self.switch_mode("campaign")

    def open_candidate(self, campaign: str, candidate: str) -> None:
        """Show a candidate over the screen in front."""
        from kopt_tui.screens.candidate import CandidateScreen  # here and below: start-up time

        self.push_screen(CandidateScreen(campaign, candidate))

    def open_transcript(self, campaign: str, *, attempt: AttemptRef | None = None,
                        candidate: str = "") -> None:
        """Show the transcript of a slot's newest attempt, or of the one that made a candidate."""
        from kopt_tui.screens.transcript import TranscriptScreen

        self.push_screen(TranscriptScreen(campaign, attempt=attempt, candidate=candidate))

    def action_knowledge(self) -> None:
        """Show the pages of kopt, of the user and of the chosen campaign's project."""
        from kopt_tui.screens.knowledge import KnowledgeScreen

        row = self.snapshot.row(self.campaign)
        if isinstance(self.front, KoptScreen) and not isinstance(self.front, KnowledgeScreen):
            self.push_screen(KnowledgeScreen(Path(row.campaign.project) if row else Path.cwd()))

    def action_help(self) -> None:
        from kopt_tui.screens.help import HelpScreen

        if isinstance(self.front, KoptScreen):
            self.push_screen(HelpScreen(self.front.SCOPE))

    def say(self, text: str, tone: str = "plain") -> None:
        """Show a message on the bottom line of the screen in front."""
        if isinstance(self.front, KoptScreen) and self.front.is_mounted:
            self.front.keybar.say(text, tone)

    # Leaving.

    def action_leave(self) -> None:
        """Quit; an engine inside this process is stopped first, after a question."""
        engine = self.engine
        if engine is None or not engine.is_alive():
            self.exit()
            return
        from kopt_tui.screens.confirm import ConfirmScreen, about_leaving

        running = ", ".join(row.id for row in self.snapshot.campaigns
                            if row.campaign.state == "running")
        self.push_screen(ConfirmScreen(about_leaving(running), self.snapshot),
                         lambda reason: None if reason is None else self._stop_engine(engine))

    def _stop_engine(self, engine: Engine) -> None:
        engine.stop()
        self.say("· the engine stops; this takes a moment", "info")

        def wait() -> None:
            engine.join()
            self.call_from_thread(self.exit)
        self.run_worker(wait, thread=True, group="leaving", exclusive=True)
