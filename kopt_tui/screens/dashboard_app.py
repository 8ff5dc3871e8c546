"""What screens and the app need of each other, stated as protocols."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kopt_tui.control import ControlRequest
from kopt_tui.snapshot.device_sampler import Sampler
from kopt_tui.snapshot.snapshot import DeviceSnapshot, Focus, Snapshot, WaitingRow


class DashboardApp(Protocol):
    """The app as its screens see it; `dashboard.Dashboard` implements it."""

    campaign: str
    snapshot: Snapshot
    devices: DeviceSnapshot
    sampler: Sampler
    readonly: bool

    @property
    def session(self) -> str: ...
    @property
    def current_mode(self) -> str: ...
    def switch_mode(self, mode: str) -> object: ...
    def look_at(self, focus: Focus) -> None: ...
    def open_campaign(self, campaign: str) -> None: ...
    def open_candidate(self, campaign: str, candidate: str) -> None: ...
    def refuses(self, verb: str) -> bool: ...
    def confirm(self, request: ControlRequest, waiting: WaitingRow | None = None) -> None: ...


@runtime_checkable
class ShowsSnapshots(Protocol):
    """A screen or dialog that follows the journal while it is in front."""

    def show(self, snapshot: Snapshot) -> None: ...
