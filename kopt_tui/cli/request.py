"""Asking a campaign's engine for something and waiting for its answer."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Literal

from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate, Control
from harness.errors import InputError, Refused
from kopt_tui.cli.campaign_choice import campaign, is_live, journal
from kopt_tui.cli.json_output import emit
from kopt_tui.cli.parser import Commands, add_json
from kopt_tui.cli.workspace import workspace_of
from kopt_tui.control import Ask, send
from kopt_tui.snapshot.phrases import clean

Host = Literal["none", "full"]

WAIT_S = 10.0
POLL_S = 0.1
APPLIED = ("kept", "rejected", "paused", "resumed", "stopping")
"""How an engine's answer begins when it did what was asked."""


def add_candidate(sub: Commands, verb: str) -> None:
    """Add a verb that is about one candidate."""
    parser = sub.add_parser(verb)
    parser.add_argument("candidate", metavar="CANDIDATE", help="its id or the start of it")
    parser.add_argument("--campaign", metavar="ID", default=None, help="where it belongs")
    add_wait(parser)


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add --wait and --json."""
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=WAIT_S,
                        help=f"how long to wait for the engine's answer (default {WAIT_S:g})")
    add_json(parser)


def decide(args: argparse.Namespace, verb: str) -> int:
    """Approve or reject a candidate; where no engine runs, a short host does it."""
    with journal(args) as reader:
        owner = None if args.campaign is None else campaign(reader, args.campaign).id
        one = reader.candidate(args.candidate, owner)
        if one.state != "waiting":
            raise Refused(f"candidate {one.id[:12]} is {one.state}, it waits for nobody",
                          fix=f"kopt show {one.id[:12]} says why" if one.reason else "")
        return put(reader, args, _ask(reader, one, verb), host="none")


def put(reader: Reader, args: argparse.Namespace, ask: Ask, *, host: Host) -> int:
    """Send a request and tell its outcome; `host` is what to start where no engine runs."""
    owner = campaign(reader, ask.campaign)
    workspace = workspace_of(args)
    number = send(workspace, ask)
    if host != "none" and not is_live(reader, owner):
        _start(workspace, owner)
    control = _answer(reader, ask.campaign, number, args.wait)
    answered = control is not None and control.applied_at is not None
    outcome = control.outcome if control is not None else ""
    refused = answered and not outcome.startswith(APPLIED)
    if args.json:
        emit({"control": number, "campaign": ask.campaign, "verb": ask.verb,
              "candidate": ask.candidate, "answered": answered, "refused": refused,
              "outcome": outcome})
    else:
        print(f"{ask.verb} {ask.candidate[:12] or ask.campaign}: "
              + (clean(outcome) or "done" if answered else
                 f"asked (control {number}), the engine has not answered yet"))
    return 1 if refused else 0


def _start(workspace: Path, owner: Campaign) -> None:
    """Start a host for a campaign that no engine runs."""
    from engine.run.host import spawn

    spawn(workspace, owner.id)


def _ask(reader: Reader, one: Candidate, verb: str) -> Ask:
    """Say what the person saw: the candidate on its base, with its newest verdict."""
    newest = reader.verdicts(one.campaign, candidate=one.id, limit=1)
    return Ask(campaign=one.campaign, verb="approve" if verb == "approve" else "reject",
               candidate=one.id, expected_base=one.base_commit,
               expected_verdict=newest[0].id if newest else None)


def _answer(reader: Reader, owner: str, number: int, wait_s: float) -> Control | None:
    if wait_s < 0:
        raise InputError("--wait is below zero")
    deadline = time.monotonic() + wait_s
    while True:
        control = next((one for one in reader.controls(owner) if one.id == number), None)
        if control is None or control.applied_at is not None or time.monotonic() >= deadline:
            return control
        time.sleep(POLL_S)
