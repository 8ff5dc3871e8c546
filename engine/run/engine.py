"""The engine: a thread that runs one campaign under its lease, from start to end.

It is the only writer of its campaign; people send it requests through controls in the journal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

from engine.campaign import setup as campaigns
from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.doctor import machine
from engine.journal import lease as leases
from engine.journal.records import Campaign
from engine.journal.write import Writer
from engine.planning import planner
from engine.run.campaign_run import run_campaign
from engine.run.controls import SHORT_HOST_VERBS
from harness.errors import KoptError, Refused, os_fault
from harness.isolation import device_lock

log = logging.getLogger("kopt.engine")


class Engine(threading.Thread):
    """Runs one campaign; `error` is the fault that ended it.

    With `decide_only` it applies waiting requests, judges patches in the inbox, and ends.
    """

    def __init__(self, workspace: Path, campaign: str, *, decide_only: bool = False) -> None:
        super().__init__(name=f"engine {campaign}", daemon=True)
        self.workspace = workspace
        self.campaign = campaign
        self.decide_only = decide_only
        self.error: KoptError | None = None
        self._stop_event = threading.Event()

    def stop(self) -> None:
        """End the campaign in order: kill workers, record the state, release the lease."""
        self._stop_event.set()

    def run(self) -> None:
        try:
            with contextlib.closing(Writer(self.workspace)) as writer:
                self._run_campaign(writer)
        except KoptError as error:
            log.error("%s", error)
            self.error = error
        except OSError as error:
            self.error = os_fault(error)
            log.error("%s", self.error)
        except Exception as error:
            log.exception("the engine failed")
            self.error = KoptError(f"internal error: {type(error).__name__}: {error}",
                                   where=self.campaign, fix="see logs/engine.log")

    def _run_campaign(self, writer: Writer) -> None:
        """Run the campaign, then whatever people have asked for during its end."""
        setup = campaigns.open_campaign(self.workspace, self.campaign)
        os.environ[device_lock.OWNER] = self.campaign
        _log_to(setup)
        self._under_lease(writer, setup, self.decide_only)
        before: set[int | str] = set()
        while not self._stop_event.is_set():
            # these were made while this engine released its lease and still looked alive
            requests = writer.open_controls(self.campaign)
            resumes = any(control.verb == "resume" for control in requests)
            undone: set[int | str] = {control.id for control in requests
                                      if control.verb in (*SHORT_HOST_VERBS, "resume")}
            undone |= {path.name for path in planner.submitted(setup)}
            if not undone - before:
                return  # what cannot be done now waits for the next engine
            before = undone
            try:
                self._under_lease(writer, campaigns.open_campaign(self.workspace, self.campaign),
                                  not resumes)
            except Refused:
                return  # another host owns the campaign

    def _under_lease(self, writer: Writer, setup: Setup, decide_only: bool) -> None:
        lease = leases.acquire(writer, self.campaign, answers_only=decide_only)
        try:
            for check in [] if decide_only else machine.start_notices(
                    setup.devices, has_benchmark=setup.command is not None,
                    python=setup.manifest.python):
                writer.event(setup.id, "log" if check.name == "container" else "warning",
                             check.name, message="; ".join(
                                 filter(None, (check.found, check.fix))))
            with contextlib.closing(
                    EngineContext(setup, writer, lease, self._stop_event)) as context:
                run_campaign(context, decide_only=decide_only)
        finally:
            try:
                with writer.transaction():
                    _answer_late_stops(writer, self.campaign)
                    leases.release(writer, lease)
            except KoptError as error:  # lost, or disk full: an earlier error counts
                log.warning("the lease could not be released: %s", error)


def _answer_late_stops(writer: Writer, campaign: str) -> None:
    """Answer pauses and stops that came while an engine ended: the next one must not obey them."""
    row = writer.one(Campaign, "WHERE id = ?", campaign)
    for control in writer.open_controls(campaign):
        if control.verb in ("pause", "stop") and row is not None:
            writer.finish_control(
                control.id, "stopping" if (control.verb, row.state) == ("stop", "stopped")
                else f"refused: the campaign is {row.state}")


class _Log(logging.FileHandler):
    """A log file that loses its lines, and nothing else, when the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def _log_to(setup: Setup) -> None:
    """Write the engine's log to a file in the campaign's folder; stdout is for results."""
    path = setup.folder.logs / "engine.log"
    if any(getattr(handler, "baseFilename", "") == str(path) for handler in log.handlers):
        return
    handler = _Log(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
