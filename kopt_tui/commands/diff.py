"""`kopt diff`: print the patch of a candidate, or of all that a campaign has kept."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import msgspec

from engine.campaign import declared_knobs
from engine.campaign.folder import Folder
from engine.journal.records import Campaign, Candidate
from engine.manifest import load
from engine.repository.clone import RECORDS, Clone
from engine.repository.patches.patch import Patch
from harness.errors import EnvironmentFault, Refused
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_bytes, print_json
from kopt_tui.cli.parser import add_json


class PrintedPatch(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's patch, or without a candidate all that the campaign has kept."""

    campaign: str
    candidate: str
    patch: str
    exact: bool
    """Whether `patch` has the exact bytes; if they are not UTF-8, only --raw prints them."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("candidate", metavar="CANDIDATE", nargs="?", default=None,
                        help="its id or the start of it (default: all that the newest campaign "
                        "has kept)")
    parser.add_argument("--raw", action="store_true",
                        help="print the exact bytes, including control characters")
    add_json(parser, PrintedPatch)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        if args.candidate is None:
            campaign, name = choose_campaign(reader, None), ""
            patch = kept(campaign).data
        else:
            candidate = reader.candidate(args.candidate)
            campaign, name = choose_campaign(reader, candidate.campaign), candidate.id
            patch = read(campaign, candidate)
    print_patch(campaign, name, patch, as_json=args.json, raw=args.raw)
    return 0


def print_patch(campaign: Campaign, candidate: str, patch: bytes, *, as_json: bool,
                raw: bool) -> None:
    """Print a patch: as JSON, as its exact bytes, or without control characters."""
    if as_json:
        text = patch.decode(errors="replace")
        print_json(PrintedPatch(campaign=campaign.id, candidate=candidate, patch=text,
                                exact=text.encode() == patch))
    elif raw:
        sys.stdout.buffer.write(patch)
    else:
        print_bytes(patch)


def kept(campaign: Campaign) -> Patch:
    """Return all that a campaign has kept, without its records. Raises Refused for nothing."""
    if campaign.best_commit == campaign.base_commit:
        raise Refused(f"{campaign.id} has kept nothing yet", fix="kopt show lists what it tried")
    before, after = result(campaign, Clone(Path(campaign.path) / "repo.git"), campaign.best_commit)
    return between(campaign, before, after)


def result(campaign: Campaign, clone: Clone, commit: str) -> tuple[str, str]:
    """Return the project's commit or tree before a campaign, and what a kept commit makes of it."""
    declared = declared_knobs.result(
        clone, load.load(Folder(Path(campaign.path)).manifest), commit) \
        if clone.git.find(declared_knobs.BEFORE) else None
    return declared or (campaign.base_commit, commit)


def between(campaign: Campaign, before: str, after: str) -> Patch:
    """Return the patch between two commits or trees of a campaign's clone, without records."""
    return Clone(Path(campaign.path) / "repo.git").diff(before, after).without(
        lambda file: "a record" if file.path.startswith(f"{RECORDS}/") else "")


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
