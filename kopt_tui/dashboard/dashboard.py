"""The dashboard's app: modes, what they share, and the way from a key to a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import structs
from textual.app import App, SystemCommand
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen

from harness.errors import KoptError
from kopt_tui import control
from kopt_tui.control import Ask
from kopt_tui.screens.base import KoptScreen, bindings
from kopt_tui.screens.campaigns import CAMPAIGNS_CSS, CampaignsScreen
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.device_sampler import Sampler
from kopt_tui.snapshot.feed import Feed
from kopt_tui.snapshot.snapshot import CampaignRow, DeviceSnapshot, Focus, Snapshot, WaitingRow
from kopt_tui.widgets.keys import KEYS
from kopt_tui.widgets.tones import KOPT_THEME


class EngineThread(Protocol):
    """An engine that runs inside this process."""

    def stop(self) -> object: ...
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


@runtime_checkable
class Questioning(Protocol):
    """A dialog that looks at snapshots while it is open."""

    def show(self, snapshot: Snapshot) -> None: ...


class Arrived(Message):
    """A snapshot was read; a newer one replaces it while it waits."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Arrived)


class Sampled(Message):
    """Devices were asked; a newer answer replaces it while it waits."""

    def __init__(self, seen: DeviceSnapshot) -> None:
        super().__init__()
        self.seen = seen

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Sampled)


class Sent(Message):
    """A request was put into the journal, or could not be."""

    def __init__(self, ask: Ask, number: int, failure: str) -> None:
        super().__init__()
        self.ask = ask
        self.number = number
        self.failure = failure


def _screen(module: str, name: str) -> Callable[[], Screen[None]]:
    """Return a mode's screen, its module loaded when the mode is first entered."""
    def make() -> Screen[None]:
        made: Screen[None] = getattr(import_module(f"kopt_tui.screens.{module}"), name)()
        return made
    return make


class Dashboard(App[None]):
    """Draws snapshots of a workspace; everything slow happens on other threads."""

    ENABLE_COMMAND_PALETTE = True
    ALLOW_SELECT = False
    TITLE = "kopt"
    CSS = CAMPAIGNS_CSS
    theme = Reactive(KOPT_THEME.name)
    BINDINGS = bindings("app")
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        "campaigns": CampaignsScreen,
        "campaign": _screen("campaign", "CampaignScreen"),
        "review": _screen("review", "ReviewScreen"),
        "trace": _screen("trace", "TraceScreen"),
        "gpus": _screen("gpus", "GpusScreen"),
        "report": _screen("report", "ReportScreen"),
    }
    DEFAULT_MODE = "campaigns"

    def __init__(self, workspace: Path, *, readonly: bool = False, campaign: str = "",
                 engine: EngineThread | None = None, feed: Feed | None = None,
                 sampler: Sampler | None = None,
                 painted: Callable[[], None] = lambda: None) -> None:
        if campaign:
            self.DEFAULT_MODE = "campaign"  # type: ignore[misc]
        super().__init__()
        self.workspace = workspace
        self.readonly = readonly
        self.engine = engine
        self.campaign = campaign
        self.snapshot = Snapshot()
        self.devices = DeviceSnapshot()
        self.feed = feed or Feed(workspace, self.deliver, focus=Focus(campaign))
        self.sampler = sampler or Sampler(self.deliver_devices)
        self.asked: dict[int, Ask] = {}
        self.painted = painted
        self.animation_level = "none"

    @property
    def session(self) -> str:
        """Return what kind of session this is, for the top bar."""
        return "read-only" if self.readonly else "engine inside" if self.engine else ""

    def deliver(self, snapshot: Snapshot) -> None:
        """Hand a snapshot over to the app; called by the feed's thread."""
        self.post_message(Arrived(snapshot))

    def deliver_devices(self, seen: DeviceSnapshot) -> None:
        """Hand devices over to the app; called by the sampler's thread."""
        self.post_message(Sampled(seen))

    def on_mount(self) -> None:
        self.sampler.start()
        self.call_after_refresh(self._first_painted)
    def _first_painted(self) -> None:
        if not self.feed.is_alive():
            self.feed.start()
        self.painted()

    def on_unmount(self) -> None:
        self.feed.stop()
        self.sampler.stop()

    @property
    def front(self) -> Screen[Any] | None:
        """Return the screen in front; there is none any more while the app closes."""
        return self.screen_stack[-1] if self.screen_stack else None

    # Snapshots in.

    def on_arrived(self, message: Arrived) -> None:
        self.snapshot = message.snapshot
        if not self.campaign and self.snapshot.campaigns:
            self.campaign = self.snapshot.campaigns[0].id
        front = self.front
        if isinstance(front, KoptScreen | Questioning):
            front.show(self.snapshot)
        self._tell_outcomes()

    def on_sampled(self, message: Sampled) -> None:
        self.devices = message.seen
        if isinstance(self.front, KoptScreen):
            self.front.draw_devices(self.devices)

    def look_at(self, focus: Focus) -> None:
        """Tell the feed what the screen in front shows."""
        asked = tuple(dict.fromkeys(ask.campaign for ask in self.asked.values()))
        self.feed.look_at(structs.replace(focus, asked=asked))

    # Ways to a screen.

    def action_mode(self, name: str) -> None:
        self.switch_mode(name)

    def open_campaign(self, campaign: str) -> None:
        """Show a campaign in Campaign mode."""
        self.campaign = campaign
        if self.current_mode == "campaign" and isinstance(self.screen, KoptScreen):
            self.screen.refocus()
        self.switch_mode("campaign")

    def open_candidate(self, campaign: str, candidate: str) -> None:
        """Show a candidate over the screen in front."""
        from kopt_tui.screens.candidate import CandidateScreen

        self.push_screen(CandidateScreen(campaign, candidate))

    def action_help(self) -> None:
        from kopt_tui.screens.help import HelpScreen

        scope = self.screen.SCOPE if isinstance(self.screen, KoptScreen) else "app"
        self.push_screen(HelpScreen(scope))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer every action of the key table by name, besides Textual's own commands."""
        scope = screen.SCOPE if isinstance(screen, KoptScreen) else "app"
        for key in KEYS:
            if ("app" in key.scopes or scope in key.scopes) and key.action != "command_palette":
                owner = "app." if key.scopes == ("app",) else "screen."
                yield SystemCommand(key.label.capitalize(), key.help,
                                    partial(self.run_action, owner + key.action))
        for command in super().get_system_commands(screen):
            if command.title in ("Theme", "Screenshot"):
                yield command

    # Requests out.

    def refuses(self, verb: str) -> bool:
        """Return whether this session may not ask for something, and say so."""
        if self.readonly:
            self.say(f"! this dashboard is read-only: {verb} is refused", "warn")
        return self.readonly

    def confirm(self, ask: Ask, waiting: WaitingRow | None = None) -> None:
        """Ask the person first, then the engine."""
        from kopt_tui.screens import questions
        from kopt_tui.screens.confirm import ConfirmScreen

        row: CampaignRow | None = self.snapshot.row(ask.campaign)
        if waiting is not None:
            question = questions.about_candidate(ask, waiting)
        elif row is not None:
            question = questions.about_campaign(ask, row)
        else:
            return
        self.push_screen(ConfirmScreen(question), lambda yes: self._send(ask) if yes else None)

    def _send(self, ask: Ask) -> None:
        def write() -> None:
            try:
                self.post_message(Sent(ask, control.send(self.workspace, ask), ""))
            except (KoptError, OSError) as error:
                self.post_message(Sent(ask, 0, str(error)))
        self.say(f"· {ask.verb} is being recorded")
        self.run_worker(write, thread=True, group="requests")

    def on_sent(self, message: Sent) -> None:
        ask, what = message.ask, _named(message.ask)
        if message.failure:
            self.say(f"✗ {what} failed: {phrases.clean(message.failure, 200)}", "bad")
            return
        self.asked[message.number] = ask
        row = self.snapshot.row(ask.campaign)
        alone = row is not None and row.engine.word != "alive" and ask.verb not in control.ALONE
        self.say(f"· {what} is recorded; " + ("no engine runs to answer it" if alone else
                                              "waiting for the engine"), "info")
        if isinstance(self.front, KoptScreen):
            self.front.refocus()

    def _tell_outcomes(self) -> None:
        for number, ask in list(self.asked.items()):
            done = control.answered(self.snapshot.controls, number)
            if done is not None:
                del self.asked[number]
                self.say(f"» {_named(ask)}: {done.outcome or 'done'}", "bold")

    def say(self, text: str, tone: str = "plain") -> None:
        """Show a message on the bottom line of the screen in front."""
        if isinstance(self.front, KoptScreen) and self.front.is_mounted:
            self.front.keybar.say(text, tone)

    # Leaving.

    def action_leave(self) -> None:
        """Quit; an engine inside is stopped in order, after a question."""
        if self.engine is None or not self.engine.is_alive():
            self.exit()
            return
        from kopt_tui.screens.confirm import ConfirmScreen
        from kopt_tui.screens.questions import about_leaving

        running = ", ".join(row.id for row in self.snapshot.campaigns if row.state == "running")
        self.push_screen(ConfirmScreen(about_leaving(running)),
                         lambda yes: self._stop_engine() if yes else None)

    def _stop_engine(self) -> None:
        engine = self.engine
        if engine is None:
            return
        engine.stop()
        self.say("· stopping the engine in order; this takes a moment", "info")

        def wait() -> None:
            engine.join()
            self.call_from_thread(self.exit)
        self.run_worker(wait, thread=True, group="leaving", exclusive=True)


def _named(ask: Ask) -> str:
    return f"{ask.verb} {phrases.short(ask.candidate) or ask.campaign}"

