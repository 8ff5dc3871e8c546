"""Submit changes: write files to a campaign's inbox, or have a candidate measured again."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from engine.campaign import earlier_changes
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate
from engine.manifest import load
from engine.repository.campaign_repo import CANDIDATES
from engine.repository.clone import Clone
from engine.repository.patches.same_change import changed_lines
from engine.run import host
from engine.workers.inbox import SOURCE
from harness.errors import InputError, Refused
from harness.formats import file_copy
from kopt_tui.cli.campaign_choice import choose_campaign, is_live


def measure_again(workspace: Path, campaign: str, candidate: str) -> None:
    """Submit a candidate's own patch again. Raises KoptError if nothing would measure it."""
    with closing(Reader(workspace)) as reader:
        chosen = choose_campaign(reader, campaign)
        change = earlier_changes.of_candidate(
            reader, chosen, reader.candidate(candidate, campaign))
        if refused := refusal(reader, chosen, runs=is_live(reader, chosen.id)):
            raise refused
    hand_in(workspace, chosen, [(file_name(change.name, whole=False), change.submission)])


def hand_in(workspace: Path, chosen: Campaign, files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Write files to a campaign's inbox and return their paths.

    If no engine runs, start a host that judges them.
    """
    inbox = Path(chosen.path) / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in files:
        file_copy.replace_file(inbox / name, data)
        paths.append(inbox / name)
    if host.owner(workspace, chosen.id) is None:  # also if it has just ended
        with contextlib.suppress(Refused):  # another host has just started and will judge it
            host.spawn(workspace, chosen.id, decide_only=True)
    return paths


def refusal(reader: Reader, campaign: Campaign, *, runs: bool) -> Refused | None:
    """Return the refusal of a patch that no process would judge; None if one would."""
    rounds = reader.rounds(campaign.id)
    if runs or (rounds and all(round.ended_at is not None for round in rounds)):
        return None
    return Refused(f"no engine runs {campaign.id}, which stopped mid-round",
                   fix="kopt resume continues it, then submit the patch")


def ask_again(candidate: str) -> str:
    """Return how a person has a candidate that was rejected judged again."""
    return f"kopt submit --from {candidate[:12]} measures it again, and you are asked again"


def repeats_rejected(reader: Reader, chosen: Campaign, data: bytes, *,
                     is_patch: bool) -> Refused | None:
    """Return the refusal of a patch or source that repeats a rejected candidate, else None."""
    change = changed_lines(data) if is_patch else None
    for rejected, reason in _rejected(reader, chosen):
        for form in reader.forms(rejected):
            same = change == changed_lines(_patch(chosen, form)) if change is not None else \
                data == _source(chosen, form)
            if same:
                return Refused(f"this is the same change as candidate {rejected.id[:12]}, "
                               f"which was {reason}", fix=ask_again(rejected.id))
    return None


def _rejected(reader: Reader, chosen: Campaign) -> Iterator[tuple[Candidate, str]]:
    """Yield the candidates whose newest decision is a person's rejection, with the reason."""
    newest = {decision.candidate: decision for decision in reversed(reader.decisions(chosen.id))}
    for candidate in reader.candidates(chosen.id, states=("closed",)):
        decision = newest.get(candidate.id)
        if decision is not None and decision.is_rejection:
            yield candidate, decision.reason


def _patch(chosen: Campaign, candidate: Candidate) -> bytes:
    try:
        return (Path(chosen.path) / candidate.patch_path).read_bytes()
    except OSError:
        return b""


def _source(chosen: Campaign, candidate: Candidate) -> bytes | None:
    """Return the kernel's source as a candidate has it, None if that is not known."""
    source = load.load(Path(chosen.path) / "manifest.yaml").kernel_source
    clone = Clone(Path(chosen.path) / "repo.git")
    tree = clone.git.find(f"{CANDIDATES}/{candidate.id}")
    try:
        return clone.read(tree, source) if tree and source else None
    except InputError:
        return None


def file_name(source: str, *, whole: bool) -> str:
    """Return a file name that sorts by time and contains the patch's own name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-.") or "patch"
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{moment}-{os.getpid()}-{stem[:40]}{SOURCE if whole else '.patch'}"
