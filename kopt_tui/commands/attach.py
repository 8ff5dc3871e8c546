"""`kopt attach`: open the dashboard on one campaign."""

from __future__ import annotations

import argparse

from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.parser import add_campaign, workspace_of


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--readonly", action="store_true", help="send no requests")


def run(args: argparse.Namespace) -> int:
    from kopt_tui.dashboard import launch  # start-up time

    with open_journal(args) as reader:
        chosen = choose_campaign(reader, args.campaign).id
    return launch.main(workspace_of(args), readonly=args.readonly, campaign=chosen)
