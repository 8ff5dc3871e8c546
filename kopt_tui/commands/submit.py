"""`kopt submit`: put a patch into a campaign's inbox."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from harness.errors import InputError, Refused
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_campaign, add_json
from kopt_tui.snapshot.phrases import clean

MAX_BYTES = 4 << 20
ENDED = ("finished", "stopped", "failed")
_DIFF = re.compile(rb"^(diff --git |--- .*\n\+\+\+ )", re.MULTILINE)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("patch", metavar="PATCH", help="a file with a diff, - for standard input")
    add_campaign(parser)
    parser.add_argument("--hypothesis", metavar="TEXT", default="",
                        help="why the patch should be faster, in one line")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    patch = _read(args.patch)
    with open_journal(args) as reader:
        chosen = choose_campaign(reader, args.campaign)
    if chosen.state in ENDED:
        raise Refused(f"{chosen.id} is {chosen.state} and accepts no more patches",
                      fix="kopt run with its manifest starts a new campaign")
    if args.hypothesis:
        patch = f"Hypothesis: {clean(args.hypothesis, 400)}\n\n".encode() + patch
    path = _drop(Path(chosen.path) / "inbox", _name(args.patch), patch)
    if args.json:
        print_json({"campaign": chosen.id, "path": str(path)})
    else:
        print(f"submitted to {chosen.id}: {path}")
    return 0


def _read(source: str) -> bytes:
    """Return the patch; raises InputError for a file that holds no diff."""
    where = "standard input" if source == "-" else source
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
    if not _DIFF.search(patch):
        raise InputError("the file holds no diff", where=where, fix="git diff prints one")
    return patch


def _name(source: str) -> str:
    """Return a file name that sorts by time and contains the patch's own name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-.") or "patch"
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{moment}-{os.getpid()}-{stem[:40]}.patch"


def _drop(inbox: Path, name: str, patch: bytes) -> Path:
    """Put a file into the inbox in one step: the engine must never see half of it."""
    inbox.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=inbox, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(patch)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, inbox / name)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    return inbox / name
