"""`kopt diff`: print the patch of a candidate."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from engine.journal.records import Campaign, Candidate
from harness.errors import EnvironmentFault
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_bytes


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("candidate", metavar="CANDIDATE", help="its id or the start of it")
    parser.add_argument("--raw", action="store_true",
                        help="print the exact bytes, including control characters")


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        candidate = reader.candidate(args.candidate)
        patch = read(choose_campaign(reader, candidate.campaign), candidate)
    if args.raw:
        sys.stdout.buffer.write(patch)
        return 0
    print_bytes(patch)
    return 0


def read(campaign: Campaign, candidate: Candidate) -> bytes:
    """Return a candidate's patch; raises EnvironmentFault if its file is not what was recorded."""
    path = Path(campaign.path) / candidate.patch_path
    try:
        patch = path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"the patch cannot be read: {error.strerror}", where=str(path),
                               fix="was the campaign's folder moved?") from error
    if hashlib.sha256(patch).hexdigest() != candidate.patch_sha256:
        raise EnvironmentFault("the patch has changed since it was judged", where=str(path),
                               fix="do not trust it; kopt show has the verdict on the original")
    return patch
