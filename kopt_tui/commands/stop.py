"""`kopt stop`: end a campaign in order."""

from __future__ import annotations

import argparse

from kopt_tui.cli.campaign_choice import journal, running
from kopt_tui.cli.parser import Commands, add_campaign
from kopt_tui.cli.request import add_wait, put
from kopt_tui.control import Ask


def add(sub: Commands) -> None:
    parser = sub.add_parser("stop")
    add_campaign(parser)
    add_wait(parser)


def run(args: argparse.Namespace) -> int:
    with journal(args) as reader:
        chosen = running(reader, args.campaign)
        return put(reader, args, Ask(campaign=chosen.id, verb="stop"), host="none")
