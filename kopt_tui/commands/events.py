"""`kopt events`: what happened, one event per line."""

from __future__ import annotations

import argparse

from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.event_stream import EventPrinter
from kopt_tui.cli.parser import add_campaign, add_json


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--follow", "-f", action="store_true",
                        help="print new events too; of one campaign until its engine has ended")
    parser.add_argument("--after", metavar="SEQ", type=int, default=None,
                        help="only events after this number")
    parser.add_argument("--lines", "-n", metavar="N", type=int, default=50,
                        help="start with the last N events (default 50, 0 for all)")
    parser.add_argument("--kind", metavar="KIND", action="append", default=[],
                        help="only this kind, such as decision or verdict; may be repeated")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        only = choose_campaign(reader, args.campaign).id if args.campaign else None
        printer = EventPrinter(reader, only, kinds=args.kind, as_json=args.json)
        if args.after is not None:
            printer.last_seq = args.after
        elif args.lines > 0:
            printer.print_last(args.lines)
        printer.follow(lambda: args.follow and (only is None or is_live(reader, only)))
    return 0
