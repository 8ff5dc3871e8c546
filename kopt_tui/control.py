"""Requests to a campaign's engine: approve, reject, pause, resume, stop."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from harness.errors import Refused

if TYPE_CHECKING:  # for start-up time, see `snapshot.snapshot`
    from engine.journal.records import ControlVerb

WITHOUT_ENGINE: tuple[ControlVerb, ...] = ("approve", "reject")
"""Verbs that work when no engine runs: a short-lived host carries them out."""


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with the base and the verdict that the person saw when deciding."""

    campaign: str
    verb: ControlVerb
    candidate: str = ""
    expected_base: str = ""
    expected_verdict: int | None = None


def send(workspace: Path, request: ControlRequest) -> int:
    """Insert the request into the journal and return its number.

    A decision on a candidate starts a short-lived host if no engine runs. Raises KoptError when
    the journal cannot be written or has no such campaign.
    """
    from engine.journal import write  # here and below: nothing that the first paint needs

    number = write.request(workspace, by=user_at_host(), **msgspec.structs.asdict(request))
    if request.verb in WITHOUT_ENGINE:
        from engine.run import host

        if host.owner(workspace, request.campaign) is None:
            with contextlib.suppress(Refused):  # another host has just started and will answer
                host.spawn(workspace, request.campaign, decide_only=True)
    return number


def user_at_host() -> str:
    """Return who sends a request: `ann@box`."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without an entry
        name = "someone"
    return f"{name}@{socket.gethostname()}"


class EngineThread(Protocol):
    """An engine that runs inside this process."""

    def stop(self) -> object: ...
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...
