"""`kopt events`: what happened, one event per line, with --json one JSON document per line."""

from __future__ import annotations

import argparse

from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.event_stream import EventLine, EventPrinter
from kopt_tui.cli.parser import add_campaign, add_json, count

LINES = 50


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser, "all campaigns")
    parser.add_argument("--follow", "-f", action="store_true",
                        help="print new events too; of one campaign until its engine has ended")
    parser.add_argument("--after", metavar="SEQ", type=count, default=None,
                        help="only events after this number")
    parser.add_argument("--lines", "-n", metavar="N", type=count, default=None,
                        help="start with the last N events (default 50, 0 for all); with --after "
                        "print the first N after it (default all)")
    parser.add_argument("--kind", metavar="KIND", action="append", default=[],
                        help="only this kind, such as decision or verdict; may be repeated")
    add_json(parser, EventLine)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        only = choose_campaign(reader, args.campaign).id if args.campaign else None
        printer = EventPrinter(reader, only, kinds=args.kind, as_json=args.json)
        if args.after is not None:
            printer.last_seq = args.after
            if args.lines and not args.follow:
                printer.print(reader.events(campaign=only, after=args.after, limit=args.lines))
                return 0
        elif args.lines != 0:
            printer.print(reader.last_events(only, args.lines or LINES))
        printer.follow(lambda: args.follow and (only is None or is_live(reader, only)))
    return 0
