"""`kopt resume`: continue a paused or interrupted campaign."""

from __future__ import annotations

import argparse

from engine.journal.read import Reader
from harness.errors import Refused
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.parser import Commands, add_campaign
from kopt_tui.cli.request import add_wait, send_and_wait
from kopt_tui.control import ControlRequest

ENDED = ("finished", "failed")


def add(sub: Commands) -> None:
    parser = sub.add_parser("resume")
    add_campaign(parser)
    add_wait(parser)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        campaign = choose_campaign(reader, args.campaign)
        if campaign.state in ENDED:
            raise Refused(f"{campaign.id} is {campaign.state} and cannot be continued",
                          fix="kopt run with its manifest starts a new campaign")
        if campaign.state == "running" and is_live(reader, campaign.id) \
                and not _pauses_soon(reader, campaign.id):
            raise Refused(f"{campaign.id} is already running", fix="kopt attach shows it")
        return send_and_wait(reader, args, ControlRequest(campaign=campaign.id, verb="resume"),
                             starts_host=True)


def _pauses_soon(reader: Reader, campaign: str) -> bool:
    """Return whether a pause waits for the end of the round; resuming takes it back."""
    newest = next((control for control in reversed(reader.controls(campaign))
                   if control.verb in ("pause", "resume")), None)
    return newest is not None and newest.verb == "pause"
