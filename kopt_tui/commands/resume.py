"""`kopt resume`: go on with a paused or interrupted campaign."""

from __future__ import annotations

import argparse

from harness.errors import Refused
from kopt_tui.cli.campaign_choice import campaign, is_live, journal
from kopt_tui.cli.parser import Commands, add_campaign
from kopt_tui.cli.request import add_wait, put
from kopt_tui.control import Ask

ENDED = ("finished", "failed")


def add(sub: Commands) -> None:
    parser = sub.add_parser("resume")
    add_campaign(parser)
    add_wait(parser)


def run(args: argparse.Namespace) -> int:
    with journal(args) as reader:
        chosen = campaign(reader, args.campaign)
        if chosen.state in ENDED:
            raise Refused(f"{chosen.id} is {chosen.state}: there is nothing to go on with",
                          fix="kopt run with its manifest starts a new one")
        if chosen.state == "running" and is_live(reader, chosen):
            raise Refused(f"{chosen.id} runs already", fix="kopt attach shows it")
        return put(reader, args, Ask(campaign=chosen.id, verb="resume"), host="full")
