"""`kopt events`: what happened, line by line."""

from __future__ import annotations

import argparse
import time

from engine.journal.read import Reader
from kopt_tui.cli.campaign_choice import campaign, is_live, journal
from kopt_tui.cli.event_stream import EventPrinter
from kopt_tui.cli.parser import Commands, add_campaign, add_json

BATCH = 500
POLL_S = 0.2


def add(sub: Commands) -> None:
    parser = sub.add_parser("events")
    add_campaign(parser)
    parser.add_argument("--follow", "-f", action="store_true",
                        help="go on; with a campaign until its engine has ended")
    parser.add_argument("--after", metavar="SEQ", type=int, default=None,
                        help="only events after this number")
    parser.add_argument("--lines", "-n", metavar="N", type=int, default=50,
                        help="begin with the last N events (default 50, 0 for all)")
    parser.add_argument("--kind", metavar="KIND", action="append", default=[],
                        help="only this kind, such as decision or verdict; may be repeated")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with journal(args) as reader:
        only = campaign(reader, args.campaign).id if args.campaign else None
        printer = EventPrinter(kinds=args.kind, as_json=args.json, named=only is None)
        seen = _first(reader, only, args, printer)
        seen = _drain(reader, only, seen, printer)
        while args.follow and _goes_on(reader, only):
            time.sleep(POLL_S)
            seen = _drain(reader, only, seen, printer)
    return 0


def _first(reader: Reader, only: str | None, args: argparse.Namespace,
           printer: EventPrinter) -> int:
    """Print what comes before the stream and return the number after which it begins."""
    if args.after is not None:
        return int(args.after)
    if args.lines <= 0:
        return 0
    last = reader.last_events(only, args.lines)
    printer.print(last)
    return last[-1].seq if last else 0


def _goes_on(reader: Reader, only: str | None) -> bool:
    return only is None or is_live(reader, campaign(reader, only))


def _drain(reader: Reader, only: str | None, seen: int, printer: EventPrinter) -> int:
    while events := reader.events(campaign=only, after=seen, limit=BATCH):
        printer.print(events)
        seen = events[-1].seq
    return seen
