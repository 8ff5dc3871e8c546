"""Requests to a campaign's engine: approve, reject, pause, resume, stop, set a limit."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.errors import Refused

if TYPE_CHECKING:  # for start-up time, see `snapshot.snapshot`
    from engine.journal.records import ControlVerb

NEEDS_ENGINE: tuple[ControlVerb, ...] = ("pause", "stop")
"""Verbs that are refused when no engine runs; for the others a host is started."""


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with the base and the verdict that the person saw when deciding."""

    campaign: str
    verb: ControlVerb
    candidate: str = ""
    expected_base: str = ""
    expected_verdict: int | None = None
    limits: Mapping[str, str] | None = None
    """The limits to set, by name."""
    reason: str = ""
    """Why a candidate is rejected."""


def send(workspace: Path, request: ControlRequest) -> int:
    """Insert the request into the journal and return its number.

    If no engine runs, `resume` starts one; a decision or a limit starts a host that ends after it.
    Raises KoptError when the journal cannot be written or has no such campaign, Refused if no
    process could answer, EnvironmentFault if the campaign's clone is gone.
    """
    from engine.campaign import handover
    from engine.journal import write  # here and below: nothing that the first paint needs
    from engine.journal.read import Reader
    from engine.run import host

    runs = host.owner(workspace, request.campaign) is not None
    if request.verb in NEEDS_ENGINE and not runs:
        raise Refused(f"no engine runs {request.campaign}", fix="kopt resume continues it")
    if not runs:
        with contextlib.closing(Reader(workspace)) as reader:
            if (campaign := reader.campaign(request.campaign)) is not None:
                handover.check_clone(campaign)
    number = write.request(workspace, by=user_at_host(), **msgspec.structs.asdict(request))
    if not runs:
        with contextlib.suppress(Refused):  # another host has just started and will answer
            host.spawn(workspace, request.campaign, decide_only=request.verb != "resume")
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
