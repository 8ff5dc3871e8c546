"""`kopt submit`: put a patch, a new source or earlier changes into a campaign's inbox."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from pathlib import Path

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.manifest import load
from engine.repository.patches import patch as patch_text
from engine.run import host
from engine.workers.inbox import SOURCE
from harness.errors import InputError, Refused
from harness.formats import file_copy
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.earlier_changes import earlier_changes
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_campaign, add_json, workspace_of
from kopt_tui.snapshot.phrases import clean


class SubmittedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were put into a campaign's inbox; `path` is the first."""

    campaign: str
    path: str
    paths: tuple[str, ...]


MAX_BYTES = 4 << 20
_DIFF = re.compile(rb"^(diff --git |--- .*\n\+\+\+ )", re.MULTILINE)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("patch", metavar="PATCH", nargs="?",
                        help="a file with a diff, - for standard input; or a file that takes the "
                        "place of the kernel's source, such as one with ModelNew")
    add_campaign(parser)
    parser.add_argument("--from", metavar="SOURCE", dest="source", default="",
                        help="instead of PATCH: judge again what an earlier campaign measured as "
                        "faster, the patches of a folder, or a commit or branch of the project")
    parser.add_argument("--hypothesis", metavar="TEXT", default="",
                        help="why the patch should be faster, in one line")
    add_json(parser, SubmittedChanges)


def run(args: argparse.Namespace) -> int:
    if bool(args.patch) + bool(args.source) + bool(args.campaign) > 2 or not (
            args.patch or args.source):
        raise InputError("give PATCH or --from SOURCE, not both or none",
                         fix="see kopt submit --help")
    with open_journal(args) as reader:
        # with --from the only name is the campaign's
        chosen = choose_campaign(reader, args.patch if args.source else args.campaign)
        files = _earlier(reader, chosen, args) if args.source else [_own(chosen, args)]
        runs = is_live(reader, chosen.id)
        if refusal := _refusal(reader, chosen, runs=runs):
            raise refusal
    paths = [_drop(Path(chosen.path) / "inbox", name, patch) for name, patch in files]
    if host.owner(workspace_of(args), chosen.id) is None:  # also if it has just ended
        with contextlib.suppress(Refused):  # another host has just started and will judge it
            host.spawn(workspace_of(args), chosen.id, decide_only=True)
    if args.json:
        print_json(SubmittedChanges(campaign=chosen.id, path=str(paths[0]),
                                    paths=tuple(map(str, paths))))
    else:
        judge = "" if not runs else "; judged after kopt resume" if chosen.state == "paused" \
            else "; judged in the next round"
        what = str(paths[0]) if len(paths) == 1 else f"{len(paths)} changes"
        print(f"submitted to {chosen.id}: {what}{judge or '; a host judges it now'}")
    return 0


def _own(chosen: Campaign, args: argparse.Namespace) -> tuple[str, bytes]:
    """Return the name and the contents of the inbox's file for PATCH."""
    where = "standard input" if args.patch == "-" else args.patch
    patch = _read(args.patch, where)
    whole = not _DIFF.search(patch)
    if whole and not _is_source(args.patch, chosen):
        raise InputError("the file holds no diff", where=where, fix="git diff prints one")
    if not whole:
        patch_text.parse(patch, where)
    return _name(args.patch, whole=whole), _stated(args.hypothesis, patch)


def _earlier(reader: Reader, chosen: Campaign,
             args: argparse.Namespace) -> list[tuple[str, bytes]]:
    """Return the names and contents of the inbox's files for --from SOURCE, in order."""
    changes = earlier_changes(reader, chosen, args.source)
    for change in changes:
        if len(change.patch) > MAX_BYTES or not _DIFF.search(change.patch):
            raise InputError(f"{change.name} holds no diff of at most {MAX_BYTES >> 20} MiB",
                             where=args.source)
    return [(_name(f"{number:03}-{change.name}.patch", whole=False),
             _stated(args.hypothesis or change.hypothesis, change.patch))
            for number, change in enumerate(changes, 1)]


def _stated(hypothesis: str, patch: bytes) -> bytes:
    """Return a patch or a source behind its hypothesis, if there is one."""
    return f"Hypothesis: {clean(hypothesis, 400)}\n\n".encode() + patch if hypothesis else patch


def _refusal(reader: Reader, campaign: Campaign, *, runs: bool) -> Refused | None:
    """Return the refusal of a patch that no process would judge; None if one would."""
    manifest = load.load(Path(campaign.path) / "manifest.yaml")
    if "inbox" not in manifest.pool.backends:
        return Refused(f"{campaign.id} judges no submitted patches: pool.backends leaves out inbox",
                       fix="kopt evaluate --patch judges one without a campaign")
    rounds = reader.rounds(campaign.id)
    if runs or (rounds and all(round.ended_at is not None for round in rounds)):
        return None
    return Refused(f"no engine runs {campaign.id}, which stopped within a round",
                   fix="kopt resume continues it, then submit the patch")


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
    if Path(file).suffix in ("", ".patch", ".diff"):
        return False
    manifest = load.load(Path(campaign.path) / "manifest.yaml")
    return Path(file).suffix == Path(manifest.kernel_source or "").suffix


def _name(source: str, *, whole: bool) -> str:
    """Return a file name that sorts by time and contains the patch's own name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-.") or "patch"
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{moment}-{os.getpid()}-{stem[:40]}{SOURCE if whole else '.patch'}"


def _drop(inbox: Path, name: str, patch: bytes) -> Path:
    """Put a file into the inbox."""
    inbox.mkdir(parents=True, exist_ok=True)
    file_copy.replace_file(inbox / name, patch)
    return inbox / name
