"""`kopt prune`: delete folders of ended campaigns that an engine would recreate.

These are checkouts, scratch files and caches; the record and the clone stay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from engine.repository import worktree
from engine.rounds import disk_space
from harness.errors import Refused
from harness.formats.quantities import counted, data_size
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_json


class RemovedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder and its size."""

    path: str
    bytes: int


class PrunedFolders(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that were removed, or with --dry-run would be."""

    dry_run: bool
    bytes: int
    removed: tuple[RemovedFolder, ...]


ENDED = ("finished", "stopped", "failed")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("campaigns", metavar="CAMPAIGN", nargs="*",
                        help="only these campaigns (default: all that have ended)")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be deleted")
    add_json(parser, PrunedFolders)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        named = [choose_campaign(reader, name) for name in args.campaigns]
        for entry in named:
            if entry.state not in ENDED or is_live(reader, entry.id):
                raise Refused(f"{entry.id} is {entry.state} and still needs its folders",
                              fix="kopt stop ends it")
        ended = named or [entry for entry in reader.campaigns()
                          if entry.state in ENDED and not is_live(reader, entry.id)]
    removed = tuple(RemovedFolder(path=str(path), bytes=disk_space.used(path))
                    for entry in ended for path in disk_space.disposable(Path(entry.path)))
    for folder in removed if not args.dry_run else ():
        worktree.remove(Path(folder.path))
    total = sum(folder.bytes for folder in removed)
    if args.json:
        print_json(PrunedFolders(dry_run=args.dry_run, bytes=total, removed=removed))
        return 0
    for folder in removed:
        print(f"{'would remove' if args.dry_run else 'removed'} {folder.path} "
              f"({data_size(folder.bytes)})")
    print(f"{data_size(total)} in {counted(len(removed), 'folder')} of "
          f"{counted(len(ended), 'ended campaign')}")
    return 0
