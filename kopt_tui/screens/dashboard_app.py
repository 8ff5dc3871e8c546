"""What a screen needs from the app: the shared state, ways to other screens, and requests."""

from __future__ import annotations

from typing import Protocol

from kopt_tui.control import Ask
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
    def confirm(self, ask: Ask, waiting: WaitingRow | None = None) -> None: ...
