"""Sends a request to a campaign's engine and waits for the answer."""

from __future__ import annotations

import argparse
import time
from typing import Literal

from engine.journal.read import Reader
from engine.journal.records import Control
from harness.errors import InputError, Refused
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.json_output import print_json
from kopt_tui.cli.parser import Commands, add_json, workspace_of
from kopt_tui.control import ControlRequest, send
from kopt_tui.snapshot.phrases import clean

WAIT_S = 10.0
POLL_S = 0.1
APPLIED = ("kept", "rejected", "paused", "resumed", "stopping")
"""The first words of an engine's answer to a request that it carried out."""


def add_candidate(sub: Commands, verb: str) -> None:
    """Add a verb that decides on one candidate."""
    parser = sub.add_parser(verb)
    parser.add_argument("candidate", metavar="CANDIDATE", help="its id or the start of it")
    parser.add_argument("--campaign", metavar="ID", default=None,
                        help="the candidate's campaign, where the id alone is ambiguous")
    add_wait(parser)


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add --wait and --json."""
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=WAIT_S,
                        help=f"how long to wait for the engine's answer (default {WAIT_S:g})")
    add_json(parser)


def decide(args: argparse.Namespace, verb: Literal["approve", "reject"]) -> int:
    """Approve or reject a candidate; a short-lived host does it if no engine runs."""
    with open_journal(args) as reader:
        owner = None if args.campaign is None else choose_campaign(reader, args.campaign).id
        candidate = reader.candidate(args.candidate, owner)
        name = candidate.id[:12]
        if candidate.state != "waiting":
            raise Refused(f"candidate {name} is {candidate.state} and does not wait for approval",
                          fix=f"kopt show {name} says why" if candidate.reason else "")
        newest = reader.verdicts(candidate.campaign, candidate=candidate.id, limit=1)
        return send_and_wait(reader, args, ControlRequest(
            campaign=candidate.campaign, verb=verb, candidate=candidate.id,
            expected_base=candidate.base_commit,
            expected_verdict=newest[0].id if newest else None))


def send_and_wait(reader: Reader, args: argparse.Namespace, request: ControlRequest, *,
                  starts_host: bool = False) -> int:
    """Send a request and print its outcome; `starts_host` runs the campaign if no engine does."""
    owner = choose_campaign(reader, request.campaign)
    workspace = workspace_of(args)
    number = send(workspace, request)
    if starts_host and not is_live(reader, owner.id):
        from engine.run.host import spawn

        spawn(workspace, owner.id)
    control = _answer(reader, request.campaign, number, args.wait)
    is_answered = control is not None and control.applied_at is not None
    outcome = control.outcome if control is not None else ""
    is_refused = is_answered and not outcome.startswith(APPLIED)
    if args.json:
        print_json({"control": number, "campaign": request.campaign, "verb": request.verb,
                    "candidate": request.candidate, "answered": is_answered,
                    "refused": is_refused, "outcome": outcome})
    else:
        print(f"{request.verb} {request.candidate[:12] or request.campaign}: "
              + (clean(outcome) or "done" if is_answered else
                 f"recorded (control {number}), the engine has not answered yet"))
    return 1 if is_refused else 0


def _answer(reader: Reader, owner: str, number: int, wait_s: float) -> Control | None:
    if wait_s < 0:
        raise InputError("--wait is below zero")
    deadline = time.monotonic() + wait_s
    while True:
        control = next((entry for entry in reader.controls(owner) if entry.id == number), None)
        if control is None or control.applied_at is not None or time.monotonic() >= deadline:
            return control
        time.sleep(POLL_S)
