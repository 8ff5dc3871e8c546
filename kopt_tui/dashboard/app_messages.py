"""The messages that other threads post to the app."""

from __future__ import annotations

from textual.message import Message

from kopt_tui.control import ControlRequest
from kopt_tui.snapshot.snapshot import DeviceSnapshot, Snapshot


class SnapshotArrived(Message):
    """The feed has read a snapshot; in the queue a newer one replaces it."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotArrived)


class DevicesArrived(Message):
    """The sampler has queried the devices; in the queue a newer answer replaces it."""

    def __init__(self, devices: DeviceSnapshot) -> None:
        super().__init__()
        self.devices = devices

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, DevicesArrived)


class RequestSent(Message):
    """A request is in the journal under its number, or `failure` says why it is not."""

    def __init__(self, request: ControlRequest, number: int, failure: str) -> None:
        super().__init__()
        self.request = request
        self.number = number
        self.failure = failure
