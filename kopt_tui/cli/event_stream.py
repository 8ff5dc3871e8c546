"""A campaign's events as plain lines, until its engine has ended, and a summary."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from engine.campaign import handover
from engine.history import history
from engine.journal.lease import alive
from engine.journal.read import Reader
from engine.journal.records import Campaign, Event
from harness.errors import KoptError
from kopt_tui.cli.json_output import body, emit
from kopt_tui.cli.user_repository import UserRepository
from kopt_tui.snapshot import phrases

POLL_S = 0.2
GOOD = ("finished", "waiting")


def follow(workspace: Path, campaign: str, *, engine: threading.Thread | None = None) -> int:
    """Print what happens until the engine ends; 0 if the campaign came to its end in order."""
    printer = EventPrinter(kinds=[], as_json=False, named=False)
    reader = Reader(workspace)
    try:
        seen = 0
        while True:
            running = engine.is_alive() if engine is not None else _owned(reader, campaign)
            events = reader.events(campaign=campaign, after=seen, limit=500)
            printer.print(events)
            if events:
                seen = events[-1].seq
            elif not running:
                break
            else:
                time.sleep(POLL_S)
        return summary(reader, campaign)
    finally:
        reader.close()


def summary(reader: Reader, campaign: str) -> int:
    """Print how a campaign stands; 0 if it ended in order."""
    found = reader.campaign(campaign)
    if found is None:
        return 1
    kept = reader.candidates(campaign, states=("kept",))
    waiting = reader.candidates(campaign, states=("waiting",))
    print(f"\n{found.id}: {found.state}, {phrases.clean(found.outcome)}")
    if found.speedup is not None:
        print(f"best against baseline: {found.speedup:.2f}x "
              f"[{found.speedup_low or 0:.2f}, {found.speedup_high or 0:.2f}], measured again "
              f"after the last keep; {place(found)}")
    undone = {commit for one in history.rollbacks(reader, campaign) for commit in one.undone}
    for one in kept:
        stands = "rolled back" if one.commit in undone else "kept"
        print(f"  {stands} {one.id} {one.commit[:12]}  {phrases.clean(one.hypothesis)}: "
              f"{phrases.clean(one.reason)}")
    for one in waiting:
        print(f"  waits for you: {one.id}  {phrases.clean(one.reason)} "
              f"(kopt approve {one.id})")
    if not kept:
        print("  nothing was kept")
    sys.stdout.flush()
    return 0 if found.state in GOOD else 1


def place(one: Campaign) -> str:
    """Return where a campaign's result is, and what takes it over."""
    takes, branch = handover.command(one), handover.branch(one)
    clone = f"commit {one.best_commit[:12]} in {Path(one.path) / 'repo.git'}"
    if handover.publishes(one):
        own = f"branch {branch} in {one.project}" if _is_at(one, branch) else clone
        return f"{own}; `{takes}` takes it over"
    why = "which ran on a copy of what the kernel needs" if handover.is_copy(one) else \
        "as the manifest says git_commit: false"
    return f"{clone}, {why}; `{takes}` takes it over"


def _is_at(one: Campaign, branch: str) -> bool:
    """Tell whether the project has a branch, and at the best: it may have refused to take it."""
    try:
        found = UserRepository(Path(one.project)).line(
            "rev-parse", "--verify", f"refs/heads/{branch}"
        )
    except KoptError:
        return False
    return found == one.best_commit


def _owned(reader: Reader, campaign: str) -> bool:
    lease = reader.lease(campaign)
    return lease is not None and alive(lease)


class EventPrinter:
    """Prints events as lines of text or of JSON."""

    def __init__(self, *, kinds: list[str], as_json: bool, named: bool) -> None:
        self.kinds, self.as_json, self.named = kinds, as_json, named

    def print(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.kinds and event.kind not in self.kinds:
                continue
            if self.as_json:
                emit({"seq": event.seq, "campaign": event.campaign, "at": event.at,
                      "kind": event.kind, "ref": event.ref, "payload": body(event.payload)})
            else:
                owner = f"{phrases.clean(event.campaign)}  " if self.named else ""
                print(f"{phrases.stamp(event.at)}  {owner}{phrases.event(event)}")
        sys.stdout.flush()
