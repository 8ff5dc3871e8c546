"""Asking a campaign's engine for something: what the dialogs do once a person has said yes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from engine.journal.records import Control, ControlVerb
from harness.errors import Refused

ALONE: tuple[ControlVerb, ...] = ("approve", "reject")
"""What can be asked when no engine runs."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the person saw it: what it was about and what it rested on."""

    campaign: str
    verb: ControlVerb
    candidate: str = ""
    expected_base: str = ""
    expected_verdict: int | None = None


def send(workspace: Path, ask: Ask) -> int:
    """Insert the request into the journal and return its number.

    A candidate can be decided on when its campaign's engine has ended: a short host does it.
    Raises KoptError when the journal cannot be written or has no such campaign.
    """
    from engine.journal.write import request

    number = request(workspace, ask.campaign, ask.verb, by=who(), candidate=ask.candidate,
                     expected_base=ask.expected_base, expected_verdict=ask.expected_verdict)
    if ask.verb in ALONE:
        from engine.run import host  # the whole engine, and only for this

        if host.owner(workspace, ask.campaign) is None:
            with contextlib.suppress(Refused):  # another took it meanwhile, and will answer
                host.spawn(workspace, ask.campaign, decide_only=True)
    return number


def who() -> str:
    """Return who asks, such as "ann@box"."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without an entry
        name = "someone"
    return f"{name}@{socket.gethostname()}"


def answered(controls: tuple[Control, ...], number: int) -> Control | None:
    """Return a control once the engine has answered it."""
    return next((one for one in controls if one.id == number and one.applied_at is not None), None)
