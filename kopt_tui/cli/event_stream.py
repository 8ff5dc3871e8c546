"""Prints a campaign's events line by line until its engine has ended, then a summary."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from engine.campaign import handover
from engine.history import history
from engine.journal.read import Reader
from engine.journal.records import Campaign, Event
from harness.errors import KoptError
from harness.formats import quantities
from kopt_tui.cli.campaign_choice import is_live
from kopt_tui.cli.json_output import print_json
from kopt_tui.cli.user_repository import UserRepository
from kopt_tui.snapshot import phrases

POLL_S = 0.2
BATCH = 500
SUCCESSFUL = ("finished", "waiting")


class EventPrinter:
    """Prints events as lines of text or of JSON; `kinds` selects some, empty means all."""

    def __init__(self, *, kinds: list[str], as_json: bool, shows_campaign: bool) -> None:
        self.kinds, self.as_json, self.shows_campaign = kinds, as_json, shows_campaign

    def print(self, events: Iterable[Event]) -> None:
        for event in events:
            if self.kinds and event.kind not in self.kinds:
                continue
            if self.as_json:
                print_json({"seq": event.seq, "campaign": event.campaign, "at": event.at,
                            "kind": event.kind, "ref": event.ref,
                            "payload": phrases.facts(event)})
            else:
                owner = f"{phrases.clean(event.campaign)}  " if self.shows_campaign else ""
                print(f"{phrases.stamp(event.at)}  {owner}{phrases.event(event)}")
        sys.stdout.flush()


def follow(workspace: Path, campaign: str, *, engine: threading.Thread | None = None) -> int:
    """Print events until the engine ends; return 0 if the campaign ended successfully."""
    printer = EventPrinter(kinds=[], as_json=False, shows_campaign=False)
    reader = Reader(workspace)
    try:
        last_seq = 0
        while True:
            is_running = engine.is_alive() if engine is not None else is_live(reader, campaign)
            events = reader.events(campaign=campaign, after=last_seq, limit=BATCH)
            printer.print(events)
            if events:
                last_seq = events[-1].seq
            elif not is_running:
                break
            else:
                time.sleep(POLL_S)
        return print_summary(reader, campaign)
    finally:
        reader.close()


def print_summary(reader: Reader, name: str) -> int:
    """Print the state and the results of a campaign; return 0 if it ended successfully."""
    campaign = reader.campaign(name)
    if campaign is None:
        return 1
    kept = reader.candidates(name, states=("kept",))
    waiting = reader.candidates(name, states=("waiting",))
    print(f"\n{campaign.id}: {campaign.state}, {phrases.clean(campaign.outcome)}")
    if campaign.speedup is not None:
        gain = quantities.speedup(campaign.speedup, campaign.speedup_low, campaign.speedup_high)
        print(f"best against baseline: {gain}, measured again after the last keep; "
              f"{result_place(campaign)}")
    undone = {commit for rollback in history.rollbacks(reader, name)
              for commit in rollback.undone}
    for candidate in kept:
        state = "rolled back" if candidate.commit in undone else "kept"
        print(f"  {state} {candidate.id} {candidate.commit[:12]}  "
              f"{phrases.clean(candidate.hypothesis)}: {phrases.clean(candidate.reason)}")
    for candidate in waiting:
        print(f"  waits for your approval: {candidate.id}  {phrases.clean(candidate.reason)} "
              f"(kopt approve {candidate.id})")
    if not kept:
        print("  nothing was kept")
    sys.stdout.flush()
    return 0 if campaign.state in SUCCESSFUL else 1


def result_place(campaign: Campaign) -> str:
    """Return where a campaign's result is, and the command that merges it."""
    command, branch = handover.command(campaign), handover.branch(campaign)
    commit = f"commit {campaign.best_commit[:12]} in {Path(campaign.path) / 'repo.git'}"
    if handover.publishes(campaign):
        place = f"branch {branch} in {campaign.project}" if _is_published(campaign, branch) \
            else commit
        return f"{place}; `{command}` takes it over"
    why = "as the campaign ran on a copy of the kernel's files" if handover.is_copy(campaign) \
        else "as the manifest says git_commit: false"
    return f"{commit}, {why}; `{command}` takes it over"


def _is_published(campaign: Campaign, branch: str) -> bool:
    """Return whether the project has the branch at the best commit: it may refuse the push."""
    try:
        commit = UserRepository(Path(campaign.project)).line(
            "rev-parse", "--verify", f"refs/heads/{branch}")
    except KoptError:
        return False
    return commit == campaign.best_commit
