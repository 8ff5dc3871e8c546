"""`kopt submit`: put a patch, a new source or earlier changes into a campaign's inbox.

Earlier changes are a candidate, those of another campaign, a folder of patches, a commit or branch
of the project, or knobs that the workspace's corpus holds. Earlier verdicts only choose which
candidates of a campaign are judged here; none of their results is used.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from pathlib import Path

import msgspec

from engine.campaign import earlier_changes
from engine.campaign.earlier_changes import MAX_BYTES, SUFFIXES, EarlierChange, check_diff
from engine.campaign.setup import open_campaign
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.manifest import load
from harness.errors import InputError, Refused
from kopt_tui.cli import submission
from kopt_tui.cli.campaign_choice import (
    choose_campaign,
    find_candidate,
    is_live,
    open_journal,
)
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.cli.parser import add_campaign, add_json, workspace_of
from kopt_tui.cli.text_lines import print_text


class SubmittedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were put into a campaign's inbox; `path` is the first."""

    campaign: str
    path: str
    paths: tuple[str, ...]


_DIFF = re.compile(rb"^(diff --git |--- .*\n\+\+\+ )", re.MULTILINE)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("patch", metavar="PATCH", nargs="?",
                        help="a file with a diff, - for standard input; or a file that "
                        "replaces the kernel's source, such as one with ModelNew")
    add_campaign(parser, "the newest; with --from CANDIDATE, the candidate's own")
    parser.add_argument("--from", metavar="SOURCE", dest="source", default="",
                        help="instead of PATCH: a candidate (measured again), an earlier campaign "
                        "(what it measured as faster), a folder of patches, a commit or branch of "
                        "the project, or corpus (the fastest knobs of the kernel that searches "
                        "have measured in this workspace)")
    parser.add_argument("--hypothesis", metavar="TEXT", default="",
                        help="why the patch should be faster, in one line")
    add_json(parser, SubmittedChanges)


def run(args: argparse.Namespace) -> int:
    if bool(args.patch) + bool(args.source) + bool(args.campaign) > 2 or not (
            args.patch or args.source):
        raise InputError("give either PATCH or --from SOURCE",
                         fix="see kopt submit --help")
    with open_journal(args) as reader:
        chosen = _judging_campaign(reader, args)
        files = _earlier_files(reader, chosen, args) if args.source else [
            _from_file(reader, chosen, args)]
        runs = is_live(reader, chosen.id)
        if refusal := submission.refusal(reader, chosen, runs=runs):
            raise refusal
    paths = submission.hand_in(workspace_of(args), chosen, files)
    if args.json:
        print_json(SubmittedChanges(campaign=chosen.id, path=str(paths[0]),
                                    paths=tuple(map(str, paths))))
    else:
        judge = "" if not runs else "; judged after kopt resume" if chosen.state == "paused" \
            else "; judged in the next round"
        what = str(paths[0]) if len(paths) == 1 else f"{len(paths)} changes"
        print_text(f"submitted to {chosen.id}: {what}"
                   f"{judge or '; a background process judges it now'}")
    return 0


def _judging_campaign(reader: Reader, args: argparse.Namespace) -> Campaign:
    """Return the campaign that judges: the named one, else a candidate's own, else the newest."""
    name = args.patch if args.source else args.campaign  # with --from, the one name
    if args.source and name is None and not Path(args.source).is_dir():
        with contextlib.suppress(InputError):
            if candidate := find_candidate(reader, args.source):
                name = candidate.campaign
    return choose_campaign(reader, name)


def _from_file(reader: Reader, chosen: Campaign, args: argparse.Namespace) -> tuple[str, bytes]:
    """Return the name and the contents of the inbox's file for PATCH."""
    where = "standard input" if args.patch == "-" else args.patch
    patch = _read(args.patch, where)
    is_whole = not _DIFF.search(patch)
    if refused := submission.repeats_rejected(reader, chosen, patch, is_patch=not is_whole):
        raise refused
    if is_whole and not _is_source(args.patch, chosen):
        raise InputError("the file contains no diff", where=where, fix="git diff prints one")
    if not is_whole:
        check_diff(patch, where)
    return (submission.file_name(args.patch, whole=is_whole),
            earlier_changes.stated(args.hypothesis, patch))


def _earlier_files(reader: Reader, chosen: Campaign,
                   args: argparse.Namespace) -> list[tuple[str, bytes]]:
    """Return the names and contents of the inbox's files for --from SOURCE, in order."""
    changes = _not_rejected(reader, chosen, args.source)
    return [(submission.file_name(f"{number:03}-{change.name}.patch", whole=False),
             earlier_changes.stated(args.hypothesis or change.hypothesis, change.patch))
            for number, change in enumerate(changes, 1)]


def read_changes(reader: Reader, chosen: Campaign, source: str) -> list[EarlierChange]:
    """Return the changes of --from SOURCE for a campaign. Raises InputError, Refused."""
    def kernel() -> earlier_changes.Kernel:
        setup = open_campaign(Path(chosen.path).parent, chosen.id, to_read=True)
        return setup.target, setup.repo

    return earlier_changes.read(reader, chosen, source, kernel)


def _not_rejected(reader: Reader, chosen: Campaign, source: str) -> list[EarlierChange]:
    """Return the changes of --from SOURCE without those that a person has rejected here.

    A single candidate of the campaign is measured again. Raises Refused if no change is left.
    """
    changes, left = read_changes(reader, chosen, source), []
    if len(changes) == 1 and (candidate := earlier_changes.candidate(reader, chosen, source)) and \
            candidate.campaign == chosen.id:
        return changes
    for change in changes:
        refused = submission.repeats_rejected(reader, chosen, change.patch, is_patch=True)
        if refused is None:
            left.append(change)
        elif len(changes) == 1:
            raise refused
        else:
            print_note(f"{change.name} is left out: {refused}")
    if not left:
        raise Refused("a person has rejected all of these changes", where=source)
    return left


def _read(source: str, where: str) -> bytes:
    """Return the patch or the source. Raises InputError for a file that cannot be read."""
    if source == "-":
        patch = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        path = Path(source)
        if not path.is_file():
            raise InputError("the file does not exist", where=where)
        with path.open("rb") as file:
            patch = file.read(MAX_BYTES + 1)
    if len(patch) > MAX_BYTES:
        raise InputError(f"the patch is larger than {MAX_BYTES >> 20} MiB", where=where)
    return patch


def _is_source(file: str, campaign: Campaign) -> bool:
    """Return whether a file can take the place of the kernel's source, by its suffix."""
    if Path(file).suffix in ("", *SUFFIXES):
        return False
    manifest = load.load(Path(campaign.path) / "manifest.yaml")
    return Path(file).suffix == Path(manifest.kernel_source or "").suffix
