"""What the engine thread works with: journal, queue and the one place where it waits.

Whatever is waited for, controls are looked at and the lease is beaten several times a second.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from engine.campaign.setup import Setup
from engine.journal import lease as leases
from engine.journal.read import Reader
from engine.journal.records import Lease
from engine.journal.write import Writer
from engine.messages import SlotProgress
from engine.verify import harness_client
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import DeviceNotice
from engine.verify.verifier import VerdictRequest, VerdictResult, Verifier
from harness.benchmark.spec.command_target import CommandTarget
from harness.isolation.zygote_client import WarmStart
from harness.timing import stats
from harness.verdict import HARNESS_VERSION, Verdict

T = TypeVar("T")
LOOK_S = 0.2
BEAT_S = 5.0
TICK_S = 0.5


class CampaignStopped(Exception):
    """Ends the engine thread's campaign now; the text says why.

    No KoptError, so that handlers of a candidate's faults let it pass; `harness.errors.Cancelled`
    is one piece of work that its owner cancelled.
    """


class EngineContext:
    """What the parts of a running engine work with. Only the engine thread may use it."""

    def __init__(self, setup: Setup, writer: Writer, lease: Lease, stop: threading.Event) -> None:
        self.setup = setup
        self.writer = writer
        self.stop = stop
        self.reader = Reader(setup.workspace)
        self.messages: queue.Queue[object] = queue.Queue()
        self.fleet = _fleet(setup, self.messages)
        self.verifier = Verifier(setup, self.messages, self.fleet)
        self.on_controls: Callable[[], None] = lambda: None
        self.round = 0
        self.waited_s = 0.0
        """Time spent waiting for workers and the harness; the rest is the engine's own."""
        self.since = lease.heartbeat
        self._lease = lease
        self._spent = judged(self.reader, setup.id)
        self._beaten = time.monotonic()
        self._looked = 0.0
        self._ticks: dict[str, tuple[str, float]] = {}
        self._phase = ""
        """What the campaign was at before it waited for a device."""

    def wait(self) -> object | None:
        """Return the next message that is neither a tick nor news of a card, None if a moment
        brought none; raises CampaignStopped.
        """
        self._look()
        began = time.monotonic()
        try:
            message = self.messages.get(timeout=LOOK_S)
        except queue.Empty:
            return None
        finally:
            self.waited_s += time.monotonic() - began
        return None if self._shown(message) else message

    def verdict(self, job: VerdictRequest) -> Verdict:
        """Have one verdict made and wait for it; what else arrives meanwhile stays in the queue.

        Raises KoptError for a fault, CampaignStopped.
        """
        self.verifier.submit(job)
        others: list[object] = []
        try:
            while True:
                message = self.wait()
                if isinstance(message, VerdictResult) and message.job == job:
                    if message.fault is not None:
                        raise message.fault
                    assert message.verdict is not None
                    return message.verdict
                if message is not None:
                    others.append(message)
        finally:
            for other in others:
                self.messages.put(other)
            self._waits("")

    def aside(self, work: Callable[[], T]) -> T:
        """Do something slow beside this thread and wait for it, as attentive as ever."""
        began = time.monotonic()
        with ThreadPoolExecutor(1, thread_name_prefix="aside") as executor:
            future = executor.submit(work)
            while not future.done():
                self._look()
                self._show()
                wait([future], timeout=LOOK_S)
        self.waited_s += time.monotonic() - began
        self._waits("")
        if self.stop.is_set():  # what was stopped half-way says nothing about its subject
            raise CampaignStopped("stopped")
        return future.result()

    def _show(self) -> None:
        """Show ticks and news of cards that have come; everything else stays in the queue."""
        others: list[object] = []
        with contextlib.suppress(queue.Empty):
            while True:
                message = self.messages.get_nowait()
                if not self._shown(message):
                    others.append(message)
        for other in others:
            self.messages.put(other)

    def _shown(self, message: object) -> bool:
        if isinstance(message, SlotProgress):
            self._tick(message)
        elif isinstance(message, DeviceNotice):
            self.writer.event(self.setup.id, "gate", message.device, message=message.text)
        return isinstance(message, SlotProgress | DeviceNotice)

    def recorded(self, candidate: str, purpose: str, incumbent_tree: str) -> Verdict | None:
        """Return the verdict on a candidate that the journal has already, if any."""
        row = self.reader.verdict(self.setup.id, candidate, purpose=purpose,
                                  incumbent_tree=incumbent_tree, harness_version=HARNESS_VERSION)
        return None if row is None else row.decode()

    def alpha(self) -> float:
        """Return the error rate of the campaign's next verdict on a candidate; it counts it."""
        self._spent += 1
        return stats.alpha_of_verdict(self.setup.manifest.decision.alpha,
                                      self.setup.planned_looks, self._spent - 1)

    def close(self) -> None:
        self.verifier.stop()
        self.fleet.close()
        self.reader.close()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self.on_controls()
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            self._lease = leases.heartbeat(self.writer, self._lease)
        if self.stop.is_set():
            raise CampaignStopped("stopped")

    def _tick(self, tick: SlotProgress) -> None:
        """Overwrite the slot's live stage: a new one at once, what it tells twice a second."""
        now = time.monotonic()
        stage, at = self._ticks.get(tick.slot, ("", 0.0))
        if stage == tick.stage and now - at < TICK_S:
            return
        self._ticks[tick.slot] = (tick.stage, now)
        self.tick(tick.slot, tick.stage, tick.detail, tick.done)

    def tick(self, slot: str, stage: str, detail: str = "", done: float | None = None) -> None:
        try:
            self.writer.tick_slot(self.setup.id, self.round, slot, stage=stage, detail=detail,
                                  progress=done)
        except LookupError:  # no slot's: the baseline, a headline, an approval
            self._waits(detail if stage == "waiting" else "")

    def _waits(self, what_for: str) -> None:
        """Show what the campaign waits for as long as it does, and then what it was at before."""
        if not what_for and not self._phase:
            return
        if not self._phase:
            found = self.reader.campaign(self.setup.id)
            self._phase = found.phase if found is not None else ""
        self.writer.tick_campaign(self.setup.id, phase=what_for or self._phase)
        if not what_for:
            self._phase = ""


def _fleet(setup: Setup, messages: queue.Queue[object]) -> Fleet:
    manifest = setup.manifest
    target = setup.target
    cards = [(device, WarmStart(None) if isinstance(target, CommandTarget) else
              harness_client.warm_start(target, device, manifest.python, manifest.env))
             for device in setup.devices]
    return Fleet(cards, retry_s=manifest.gpu.retry_s, limit_s=manifest.gpu.limit_s,
                 news=messages.put)


def judged(reader: Reader, campaign: str) -> int:
    """Return how many verdicts on candidates there are: others spend no error rate."""
    known = {one.id for one in reader.candidates(campaign)}
    return sum(row.candidate in known for row in reader.verdicts(campaign))
