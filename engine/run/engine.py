"""The engine: a thread that carries one campaign, under its lease, from start to end.

It is the only writer of its campaign; people reach it through controls in the journal.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from engine.campaign import setup as campaigns
from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.doctor import start
from engine.journal import lease as leases
from engine.journal.write import Writer
from engine.run.campaign_run import run_campaign
from harness.errors import KoptError, Refused, of_os

log = logging.getLogger("kopt.engine")


class Engine(threading.Thread):
    """Runs one campaign. `decide_only` applies waiting controls and ends (a short host).

    Once it has ended, `error` is what kept it from ending in order, if anything did.
    """

    def __init__(self, workspace: Path, campaign: str, *, decide_only: bool = False) -> None:
        super().__init__(name=f"engine {campaign}", daemon=True)
        self.workspace = workspace
        self.campaign = campaign
        self.decide_only = decide_only
        self.error: KoptError | None = None
        self.own_s = 0.0
        """Wall time outside workers and harness, once it has ended."""
        self.wall_s = 0.0
        self._stop_event = threading.Event()

    def stop(self) -> None:
        """End the campaign in order: workers killed, state recorded, lease given back."""
        self._stop_event.set()

    def run(self) -> None:
        began = time.monotonic()
        try:
            writer = Writer(self.workspace)
            try:
                self._carry(writer)
            finally:
                writer.close()
        except KoptError as error:
            log.error("%s", error)
            self.error = error
        except OSError as error:
            self.error = of_os(error)
            log.error("%s", self.error)
        except Exception as error:
            log.exception("the engine failed")
            self.error = KoptError(f"internal error: {type(error).__name__}: {error}",
                                   where=self.campaign, fix="logs/engine.log has more")
        finally:
            self.wall_s = time.monotonic() - began

    def _carry(self, writer: Writer) -> None:
        setup = campaigns.open_campaign(self.workspace, self.campaign)
        _log_to(setup)
        self._under_lease(writer, setup, self.decide_only)
        before: set[int] = set()
        while not self._stop_event.is_set():
            # asked while the lease was given back, by somebody who saw an engine alive
            undecided = _undecided(writer, self.campaign)
            if not undecided - before:
                return  # what could not be decided now waits for the next engine
            before = undecided
            try:
                self._under_lease(writer, campaigns.open_campaign(self.workspace, self.campaign),
                                  True)
            except Refused:
                return  # a short host was started for it

    def _under_lease(self, writer: Writer, setup: Setup, decide_only: bool) -> None:
        began = time.monotonic()
        lease = leases.acquire(writer, self.campaign)
        try:
            for check in [] if decide_only else start.notices(setup.devices):
                writer.event(setup.id, "log" if check.name == "container" else "warning",
                             check.name, message="; ".join(
                                 filter(None, (check.found, check.fix))))
            context = EngineContext(setup, writer, lease, self._stop_event)
            try:
                run_campaign(context, decide_only=decide_only)
            finally:
                context.close()
                self.own_s += time.monotonic() - began - context.waited_s
        finally:
            try:
                leases.release(writer, lease)
            except KoptError as error:  # taken over, or the disk is full: what led here counts
                log.warning("the lease could not be given back: %s", error)


def _undecided(writer: Writer, campaign: str) -> set[int]:
    return {control.id for control in writer.open_controls(campaign)
            if control.verb in ("approve", "reject")}


class _Log(logging.FileHandler):
    """A log file; a disk that is full costs its lines and nothing else."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def _log_to(setup: Setup) -> None:
    """Send the engine's log to a file in the campaign's folder; stdout belongs to output."""
    path = setup.folder.logs / "engine.log"
    if any(getattr(h, "baseFilename", "") == str(path) for h in log.handlers):
        return
    handler = _Log(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
