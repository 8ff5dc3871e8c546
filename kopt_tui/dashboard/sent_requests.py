"""The requests of a dashboard: a person confirms one, it is recorded, and the engine answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs
from textual.screen import Screen

from harness.errors import KoptError
from kopt_tui import control
from kopt_tui.control import ControlRequest
from kopt_tui.screens.base import KoptScreen
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import Snapshot, WaitingRow


class RequestingApp(Protocol):
    """The app as its requests see it; `dashboard.Dashboard` implements it."""

    workspace: Path
    readonly: bool
    snapshot: Snapshot

    @property
    def front(self) -> Screen[Any] | None: ...
    def say(self, text: str, tone: str = "plain") -> None: ...
    def push_screen(self, screen: Screen[str | None],
                    callback: Callable[[str | None], None]) -> object: ...
    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool: ...
    def run_worker(self, work: Callable[[], None], *, group: str, thread: bool) -> object: ...


class SentRequests:
    """Sends requests, remembers those without an answer, and shows the engine's answers."""

    def __init__(self, dashboard: RequestingApp) -> None:
        self._dashboard = dashboard
        self._waiting: dict[int, ControlRequest] = {}

    @property
    def campaigns(self) -> tuple[str, ...]:
        """Return the campaigns whose engine has not answered yet."""
        return tuple(dict.fromkeys(request.campaign for request in self._waiting.values()))

    def refuses(self, verb: str) -> bool:
        """Return whether this session may not send requests; if so, say it on the bottom line."""
        if self._dashboard.readonly:
            self._dashboard.say(f"! this dashboard is read-only: {verb} is refused", "warn")
        return self._dashboard.readonly

    def confirm(self, request: ControlRequest, waiting: WaitingRow | None = None) -> None:
        """Send a request after the person has confirmed it."""
        from kopt_tui.screens import confirm  # here: start-up time

        row = self._dashboard.snapshot.row(request.campaign)
        if waiting is not None:
            question = confirm.about_candidate(request, waiting)
        elif row is not None:
            question = confirm.about_campaign(request, row)
        else:
            return
        self._dashboard.push_screen(
            confirm.ConfirmScreen(question, self._dashboard.snapshot), lambda reason: None
            if reason is None else self._send(structs.replace(request, reason=reason)))

    def _send(self, request: ControlRequest) -> None:
        dashboard = self._dashboard

        def write() -> None:
            try:
                number = control.send(dashboard.workspace, request)
            except (KoptError, OSError) as error:
                failure = phrases.clean(str(error), 200)
                dashboard.call_later(dashboard.say, f"✗ {_name(request)} failed: {failure}", "bad")
            else:
                dashboard.call_later(self._note_sent, request, number)
        dashboard.say(f"· recording the request to {request.verb}")
        dashboard.run_worker(write, thread=True, group="requests")

    def measure_again(self, campaign: str, candidate: str) -> None:
        """Submit a near gain again; the next round or a new host measures it."""
        from kopt_tui.cli import submission  # here: start-up time

        dashboard, name = self._dashboard, phrases.short(candidate)

        def write() -> None:
            try:
                submission.measure_again(dashboard.workspace, campaign, candidate)
            except (KoptError, OSError) as error:
                failure = phrases.clean(str(error), 200)
                dashboard.call_later(dashboard.say, f"✗ {name} could not be "
                                     f"submitted again: {failure}", "bad")
            else:
                dashboard.call_later(dashboard.say, f"» {name} is submitted: a round measures it "
                                     "if it applies to the best commit", "bold")
        dashboard.say(f"· submitting {name} again")
        dashboard.run_worker(write, thread=True, group="requests")

    def _note_sent(self, request: ControlRequest, number: int) -> None:
        self._waiting[number] = request
        self._dashboard.say(f"· {_name(request)} is recorded; waiting for the engine", "info")
        if isinstance(self._dashboard.front, KoptScreen):
            self._dashboard.front.refocus_feed()

    def report_answers(self) -> None:
        """Say what the engine answered to requests of this dashboard since the last snapshot."""
        for answer in self._dashboard.snapshot.controls:
            if answer.applied_at is not None and answer.id in self._waiting:
                request = self._waiting.pop(answer.id)
                self._dashboard.say(f"» {_name(request)}: {answer.outcome or 'done'}", "bold")


def _name(request: ControlRequest) -> str:
    return f"{request.verb} {phrases.short(request.candidate) or request.campaign}"
