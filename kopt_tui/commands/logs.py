"""`kopt logs`: print the log of a campaign, or what a candidate's processes printed and wrote."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import msgspec

from engine.campaign import artifacts
from engine.journal.read import Reader
from engine.journal.records import Campaign
from harness.errors import InputError
from kopt_tui.cli.campaign_choice import choose_campaign, find_candidate, open_journal
from kopt_tui.cli.output import print_bytes, print_json
from kopt_tui.cli.output_files import CandidateOutputs, ListedOutputs
from kopt_tui.cli.parser import add_json, count


class LogText(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a log or of one file; with --follow each document has the lines that are new."""

    name: str
    text: str


DEFAULT = ("optimize.md", "engine.log", "host.log")
TAIL_BYTES = 1 << 20
POLL_S = 0.3


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CAMPAIGN|CANDIDATE", nargs="?", default=None,
                        help="a name or the start of one, or baseline (default: the newest "
                        "campaign)")
    parser.add_argument("--file", metavar="NAME", default=None,
                        help=f"a file of the logs folder (default: the first of "
                        f"{', '.join(DEFAULT)} that exists), or one of the candidate's files")
    parser.add_argument("--lines", "-n", metavar="N", type=count, default=200,
                        help="only the last N lines (default 200, 0 for all)")
    parser.add_argument("--follow", "-f", action="store_true",
                        help="print new lines of a campaign's log as they are written")
    add_json(parser, LogText, ListedOutputs)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        outputs = _outputs(reader, args.name)
        if outputs is None:
            return _print_log(args, _file(choose_campaign(reader, args.name), args.file))
    if args.file is not None:
        _print_text(args, outputs.file(args.file), args.file)
    elif args.json:
        outputs.print_json()
    else:
        outputs.print(args.lines)
    return 0


def _outputs(reader: Reader, name: str | None) -> CandidateOutputs | None:
    """Return what is kept of a candidate or of another verdict, None if a campaign is meant."""
    try:
        candidate = find_candidate(reader, name)
    except InputError:
        for campaign in reader.campaigns() if name else ():
            known = {outputs.candidate for outputs in artifacts.of_campaign(reader, campaign.id)}
            if name in known:
                return CandidateOutputs(reader, campaign, str(name), None)
        raise
    if candidate is None:
        return None
    return CandidateOutputs(reader, choose_campaign(reader, candidate.campaign), candidate.id,
                            candidate)


def _print_log(args: argparse.Namespace, path: Path) -> int:
    with path.open("rb") as file:
        if args.lines:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        text = file.read()
        _print_text(args, text, path.name)
        if not text and not args.follow:
            print(f"{path.name} is still empty; --follow waits for its lines", file=sys.stderr)
        while args.follow:
            if more := file.read():
                _print_shown(args, more, path.name)
            else:
                time.sleep(POLL_S)
    return 0


def _print_text(args: argparse.Namespace, data: bytes, name: str) -> None:
    lines = data.splitlines(keepends=True)
    _print_shown(args, b"".join(lines[-args.lines:] if args.lines else lines), name)


def _print_shown(args: argparse.Namespace, shown: bytes, name: str) -> None:
    if args.json:
        print_json(LogText(name=name, text=shown.decode(errors="replace")))
        sys.stdout.flush()
    else:
        print_bytes(shown)


def _file(campaign: Campaign, name: str | None) -> Path:
    folder = Path(campaign.path) / "logs"
    names = sorted(path.name for path in folder.glob("*") if path.is_file())
    chosen = name or next((default for default in DEFAULT if default in names), None)
    if chosen not in names:
        raise InputError(f"no log {name!r}" if name else "there is no log yet", where=str(folder),
                         fix=f"there is {', '.join(names)}" if names else "")
    return folder / chosen
