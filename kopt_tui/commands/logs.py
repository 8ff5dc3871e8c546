"""`kopt logs`: print the log of a campaign."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from engine.journal.records import Campaign
from harness.errors import InputError
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_bytes
from kopt_tui.cli.parser import add_campaign

DEFAULT = ("optimize.md", "engine.log", "host.log")
TAIL_BYTES = 1 << 20
POLL_S = 0.3


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--file", metavar="NAME", default=None,
                        help=f"a file of the logs folder (default {' or '.join(DEFAULT)})")
    parser.add_argument("--lines", "-n", metavar="N", type=int, default=200,
                        help="only the last N lines (default 200, 0 for all)")
    parser.add_argument("--follow", "-f", action="store_true",
                        help="print new lines as they are written")


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        path = _file(choose_campaign(reader, args.campaign), args.file)
    with path.open("rb") as file:
        if args.lines:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        lines = file.read().splitlines(keepends=True)
        print_bytes(b"".join(lines[-args.lines:] if args.lines else lines))
        while args.follow:
            if more := file.read():
                print_bytes(more)
            else:
                time.sleep(POLL_S)
    return 0


def _file(campaign: Campaign, name: str | None) -> Path:
    folder = Path(campaign.path) / "logs"
    names = sorted(path.name for path in folder.glob("*") if path.is_file())
    chosen = name or next((default for default in DEFAULT if default in names), None)
    if chosen not in names:
        raise InputError(f"no log {name!r}" if name else "there is no log yet", where=str(folder),
                         fix=f"there is {', '.join(names)}" if names else "")
    return folder / chosen
