"""`kopt events`: what happened, one event per line."""

from __future__ import annotations

import argparse
import time

from engine.journal.read import Reader
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.event_stream import BATCH, POLL_S, EventPrinter
from kopt_tui.cli.parser import Commands, add_campaign, add_json


def add(sub: Commands) -> None:
    parser = sub.add_parser("events")
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
        printer = EventPrinter(kinds=args.kind, as_json=args.json, shows_campaign=only is None)
        seq = _print_first(reader, only, args, printer)
        seq = _print_newer(reader, only, seq, printer)
        while args.follow and (only is None or is_live(reader, only)):
            time.sleep(POLL_S)
            seq = _print_newer(reader, only, seq, printer)
    return 0


def _print_first(reader: Reader, only: str | None, args: argparse.Namespace,
                 printer: EventPrinter) -> int:
    """Print the last events and return the number after which newer ones start."""
    if args.after is not None:
        return int(args.after)
    if args.lines <= 0:
        return 0
    last = reader.last_events(only, args.lines)
    printer.print(last)
    return last[-1].seq if last else 0


def _print_newer(reader: Reader, only: str | None, seq: int, printer: EventPrinter) -> int:
    while events := reader.events(campaign=only, after=seq, limit=BATCH):
        printer.print(events)
        seq = events[-1].seq
    return seq


