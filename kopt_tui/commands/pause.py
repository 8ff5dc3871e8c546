"""`kopt pause`: pause a campaign; resume continues it."""

from __future__ import annotations

import argparse

from kopt_tui.cli.campaign_choice import choose_running, open_journal
from kopt_tui.cli.parser import Commands, add_campaign
from kopt_tui.cli.request import add_wait, send_and_wait
from kopt_tui.control import ControlRequest


def add(sub: Commands) -> None:
    parser = sub.add_parser("pause")
    add_campaign(parser)
    add_wait(parser)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        campaign = choose_running(reader, args.campaign)
        return send_and_wait(reader, args, ControlRequest(campaign=campaign.id, verb="pause"))
