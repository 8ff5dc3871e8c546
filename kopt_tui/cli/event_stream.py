"""Prints a campaign's events line by line until its engine has ended, then a summary."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from engine.campaign import handover
from engine.history import history, kept_commits, waiting_line
from engine.journal.read import Reader
from engine.journal.records import Campaign, Event, phase_of
from engine.records import measured
from harness.errors import KoptError
from harness.formats import quantities
from kopt_tui.cli.campaign_choice import is_live
from kopt_tui.cli.output import print_json
from kopt_tui.cli.text_lines import print_text
from kopt_tui.cli.user_repository import UserRepository
from kopt_tui.snapshot import event_words, phrases

POLL_S = 0.2
QUIET_S, QUIET_IN_PIPE = 10.0, 6
"""Seconds without an event after which a line says how far the work is; in a pipe, times this."""
BATCH = 500
NEAR = 3
"""Near gains that the summary names, at most."""
CONTINUES = "it continues without this terminal; kopt attach {} shows it"
SUCCESSFUL = ("finished", "waiting")
BEFORE_ROUNDS = (None, "PREPARE_ENVIRONMENT", "READ_HISTORICAL_TIPS", "BASELINE")
"""Phases in which a task may turn out to be wrong; None: before the first phase."""


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event: `ref` names what it is about, `payload` says more and differs by `kind`."""

    seq: int
    campaign: str
    at: float
    kind: str
    ref: str
    payload: Mapping[str, Any]


class EventPrinter:
    """Prints the events of one campaign, or of all, as lines of text or of JSON.

    `kinds` selects some kinds, empty means all.
    """

    def __init__(self, reader: Reader, campaign: str | None, *, kinds: Sequence[str] = (),
                 as_json: bool = False) -> None:
        self._reader, self._campaign = reader, campaign
        self._kinds, self._as_json = kinds, as_json
        self.last_seq = 0
        self._printed_at = time.monotonic()
        self._progress = ""

    def follow(self, is_running: Callable[[], bool]) -> None:
        """Print events after `last_seq` until nothing runs that could add some."""
        quiet_s = QUIET_S * (1 if sys.stdout.isatty() else QUIET_IN_PIPE)
        while True:
            is_active = is_running()
            while events := self._reader.events(campaign=self._campaign, after=self.last_seq,
                                                limit=BATCH):
                self.print(events)
            if not is_active:
                return
            if time.monotonic() - self._printed_at > quiet_s:
                self._print_progress()
            time.sleep(POLL_S)

    def _print_progress(self) -> None:
        """Print how far a campaign's work is, unless that was the last line."""
        row = None if self._as_json or self._kinds or self._campaign is None else \
            self._reader.campaign(self._campaign)
        slot = max(self._reader.slots(row.id, row.round), default=None,
                   key=lambda slot: slot.updated_at) if row else None
        words = "" if row is None else row.phase if slot is None or slot.progress is None else \
            f"{row.phase}  {slot.slot}  {slot.stage} {slot.detail.removeprefix(f'{slot.stage} ')}"
        if words and words != self._progress:
            print_text(f"{phrases.stamp(time.time())}  {phrases.clean(words)}", indent=4)
            sys.stdout.flush()
        self._progress, self._printed_at = words, time.monotonic()

    def print(self, events: Sequence[Event]) -> None:
        self._printed_at = time.monotonic()
        for event in events:
            self.last_seq = event.seq
            if self._kinds and event.kind not in self._kinds:
                continue
            if self._as_json:
                print_json(EventLine(**{**msgspec.structs.asdict(event),
                                        "payload": event_words.facts(event)}))
            else:
                owner = "" if self._campaign else f"{phrases.clean(event.campaign)}  "
                print_text(f"{phrases.stamp(event.at)}  {owner}{event_words.event(event)}")
        sys.stdout.flush()


def follow(workspace: Path, campaign: str, *, engine: threading.Thread | None = None) -> int:
    """Print events until the engine ends, then a summary; return 0 if the campaign succeeded."""
    with closing(Reader(workspace)) as reader:
        EventPrinter(reader, campaign).follow(
            engine.is_alive if engine is not None else lambda: is_live(reader, campaign))
        return print_summary(reader, campaign)


def follow_start(workspace: Path, campaign: str) -> int:
    """Print events until the first round after the baseline begins; Ctrl-C ends only this.

    If the engine ends before that, prints a summary and returns 1 unless the campaign succeeded.
    """
    with closing(Reader(workspace)) as reader:
        def is_starting() -> bool:
            row = reader.campaign(campaign)
            return row is not None and phase_of(row.phase) in BEFORE_ROUNDS \
                and is_live(reader, campaign)

        try:
            EventPrinter(reader, campaign).follow(is_starting)
        except KeyboardInterrupt:
            print()
        if is_live(reader, campaign):
            print_text(CONTINUES.format(campaign))
            return 0
        return print_summary(reader, campaign)


def print_summary(reader: Reader, name: str) -> int:
    """Print the state and the results of a campaign; return 0 if it ended successfully."""
    campaign = reader.campaign(name)
    if campaign is None:
        return 1
    kept = reader.candidates(name, states=("kept",))
    waiting = reader.candidates(name, states=("waiting",))
    outcome = phrases.engine_gone(campaign) if campaign.state == "running" \
        else phrases.clean(campaign.outcome)
    print()
    print_text(f"{campaign.id}: {campaign.state}" + (outcome and f", {outcome}"))
    if campaign.speedup is not None:
        print_text(f"best against baseline: {phrases.headline(campaign)}, measured again after "
                   f"the last keep; {result_place(campaign)}")
    past = history.read(reader, name)
    if calls := measured.call_times(past):
        print_text(f"  {calls}", indent=4)
    undone = kept_commits.undone(kept_commits.rollbacks(reader, name))
    for candidate in kept:
        state = "rolled back" if candidate.commit in undone else "kept"
        print_text(f"  {state} {candidate.id} {candidate.commit[:12]}  "
                   f"{phrases.quoted(candidate.hypothesis)}: {phrases.clean(candidate.reason)}",
                   indent=4)
    if words := waiting_line.provisional(reader, name):
        print_text(f"  {words}", indent=4)
    line = waiting_line.read(reader, name)
    for candidate in waiting:
        then = waiting_line.obstacle(line, candidate) or f"kopt approve {candidate.id}"
        rests = waiting_line.resting(line, candidate.id)
        print_text(f"  waits for your approval: {candidate.id}  "
                   f"{phrases.clean(candidate.reason)} ({then})"
                   + (f"; built on it: {rests}" if rests else ""), indent=4)
    if not kept:
        print("  nothing was kept")
    for near in past.near_gains()[-NEAR:]:
        print_text(f"  {near.candidate[:12]}  near gain of "
                   f"{quantities.percent(near.near_gain, 1)}; "
                   f"{phrases.measure_again(near.candidate)}", indent=4)
    sys.stdout.flush()
    return 0 if campaign.state in SUCCESSFUL else 1


def result_place(campaign: Campaign) -> str:
    """Return where a campaign's result is, and the command that merges it."""
    command, branch = handover.command(campaign), handover.branch(campaign)
    commit = f"commit {campaign.best_commit[:12]} in {Path(campaign.path) / 'repo.git'}"
    if handover.publishes(campaign):
        place = f"branch {branch} in {campaign.project}" if _is_published(campaign, branch) \
            else commit
        return f"{place}; `{command}` applies it"
    why = "as the campaign ran on a copy of the kernel's files" if handover.is_copy(campaign) \
        else "as the manifest says git_commit: false"
    return f"{commit}, {why}; `{command}` applies it"


def _is_published(campaign: Campaign, branch: str) -> bool:
    """Return whether the project's branch is at the best commit; a push may have been refused."""
    try:
        commit = UserRepository(Path(campaign.project)).line(
            "rev-parse", "--verify", f"refs/heads/{branch}")
    except KoptError:
        return False
    return commit == campaign.best_commit
