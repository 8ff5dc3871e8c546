"""What the engine thread works with: journal, message queue, devices, verdicts.

All waits of the thread are here, so that each of them reads controls and renews the lease.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import msgspec

from engine.campaign import artifacts
from engine.campaign.artifacts import Artifacts
from engine.campaign.setup import Setup
from engine.journal import lease as leases
from engine.journal.decoded.recorded import verdict_of
from engine.journal.liveness import Lease
from engine.journal.model_costs import ModelBill
from engine.journal.read import Reader
from engine.journal.records import in_phase, phase_of
from engine.journal.write import Writer
from engine.task import AgentProgress, ModelAnswer, SlotProgress
from engine.verify import harness_client
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import DeviceNotice
from engine.verify.verifier import VerdictRequest, VerdictResult, Verifier
from harness.benchmark.spec.command_target import CommandTarget
from harness.isolation.zygote_client import WarmStart
from harness.timing import stats
from harness.verdict import HARNESS_VERSION, Verdict

T = TypeVar("T")
CONTROLS_S = 0.2
HEARTBEAT_S = 5.0
TICK_S = 0.5


class CampaignStopped(Exception):
    """The campaign ends now; the text says why.

    Not a KoptError, so that the handlers of a candidate's faults do not catch it. Do not confuse it
    with `harness.errors.Cancelled`: that ends one piece of work.
    """


class EngineContext:
    """What the components of a running engine share. Only the engine thread may use it."""

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
        self.used_usd = self.reader.model_bills().get(setup.id, ModelBill()).cost_usd
        """What the campaign's models have cost so far, as far as their prices are known."""
        self.last_earlier_request = writer.last_earlier_request(setup.id)
        self._lease = lease
        self._looks = count_looks(self.reader, setup.id)
        self._heartbeat_at = time.monotonic()
        self._controls_at = 0.0
        self._ticks: dict[str, tuple[str, float]] = {}
        self._phase = self._shown = ""
        """The phase, and the text shown for it: with the progress of a verdict that has no slot."""

    def use_setup(self, setup: Setup) -> None:
        """Use a changed manifest or target from now on."""
        self.setup = self.verifier.setup = setup

    def wait(self) -> object | None:
        """Return the next message, None if it is a notice or none came. Raises CampaignStopped."""
        self._attend()
        try:
            message = self.messages.get(timeout=CONTROLS_S)
        except queue.Empty:
            return None
        if isinstance(message, VerdictResult) and not message.job.slot:
            self._show_progress("")
        return None if self._record_if_notice(message) else message

    def verdict(self, job: VerdictRequest) -> Verdict:
        """Wait for one verdict; other messages stay queued. Raises KoptError, CampaignStopped."""
        job = self.submit(job)
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
            self._show_progress("")

    def submit(self, job: VerdictRequest) -> VerdictRequest:
        """Request a verdict whose outputs are kept with the present round; return the request."""
        job = msgspec.structs.replace(job, round=self.round)
        self.verifier.submit(job)
        return job

    def run_in_thread(self, work: Callable[[], T]) -> T:
        """Do slow work in another thread and return its result. Raises CampaignStopped."""
        with ThreadPoolExecutor(1, thread_name_prefix="side-work") as executor:
            future = executor.submit(work)
            while not future.done():
                self._attend()
                self.record_notices()
                wait([future], timeout=CONTROLS_S)
        self._show_progress("")
        if self.stop.is_set():  # the work may have been cancelled: its result means nothing
            raise CampaignStopped("stopped")
        return future.result()

    def book(self, answer: ModelAnswer) -> None:
        """Record what a model's answer cost; warn once for each model whose price is unknown."""
        costs = self.reader.model_costs(self.setup.id) if answer.cost_usd is None else ()
        with self.writer.transaction():
            self.writer.model_spent(self.setup.id, answer)
            if answer.cost_usd is None and not any(
                    cost.unpriced and cost.model == answer.model for cost in costs):
                self.writer.event(self.setup.id, "warning", answer.slot, message=(
                    f"the price of {answer.model} is unknown: cost limits do not count it"))
        self.used_usd += answer.cost_usd or 0.0

    def record_notices(self) -> None:
        """Record all notices that have arrived; other messages stay queued."""
        others: list[object] = []
        with contextlib.suppress(queue.Empty):
            while True:
                message = self.messages.get_nowait()
                if not self._record_if_notice(message):
                    others.append(message)
        for other in others:
            self.messages.put(other)

    def _record_if_notice(self, message: object) -> bool:
        """Record a message if it is a notice: no round waits for it. Return whether it is one."""
        if isinstance(message, SlotProgress):
            self._tick(message)
        elif isinstance(message, DeviceNotice):
            self.writer.event(self.setup.id, "gate", message.device, message=message.text)
        elif isinstance(message, Artifacts):
            artifacts.record(self.writer, self.reader, self.setup.folder, self.setup.id, message)
        elif isinstance(message, ModelAnswer):
            self.book(message)
        return isinstance(message, SlotProgress | DeviceNotice | Artifacts | ModelAnswer)

    def recorded(self, candidate: str, purpose: str, incumbent_tree: str = "") -> Verdict | None:
        """Return the recorded verdict on a candidate, by default against the baseline, or None."""
        row = self.reader.verdict(self.setup.id, candidate, purpose=purpose,
                                  incumbent_tree=incumbent_tree or self.setup.base_tree,
                                  harness_version=HARNESS_VERSION)
        return None if row is None else verdict_of(row)

    def alpha(self) -> float:
        """Spend and return the error rate of the campaign's next verdict on a candidate."""
        self._looks += 1
        return stats.alpha_of_verdict(self.setup.manifest.decision.alpha,
                                      self.setup.planned_looks, self._looks - 1)

    def close(self) -> None:
        """End the verifier's threads, the warm harness processes and the reader."""
        self.verifier.stop()
        self.fleet.close()
        self.reader.close()

    def _attend(self) -> None:
        """Read controls and renew the lease when they are due. Raises CampaignStopped."""
        now = time.monotonic()
        if now - self._controls_at >= CONTROLS_S:
            self._controls_at = now
            self.on_controls()
        if now - self._heartbeat_at >= HEARTBEAT_S:
            self._heartbeat_at = now
            self._lease = leases.heartbeat(self.writer, self._lease)
        if self.stop.is_set():
            raise CampaignStopped("stopped")

    def _tick(self, tick: SlotProgress) -> None:
        """Overwrite a slot's live stage: a new stage at once, new details at most every TICK_S."""
        now = time.monotonic()
        stage, at = self._ticks.get(tick.slot, ("", 0.0))
        if stage == tick.stage and now - at < TICK_S:
            return
        self._ticks[tick.slot] = (tick.stage, now)
        self.tick(tick.slot, tick.stage, tick.detail, tick.done, tick.agent)

    def tick(self, slot: str, stage: str, detail: str = "", done: float | None = None,
             agent: AgentProgress | None = None) -> None:
        """Show a slot's live stage; `done` is a share of 1."""
        try:
            self.writer.tick_slot(self.setup.id, self.round, slot, stage=stage, detail=detail,
                                  progress=done, agent=agent)
        except LookupError:  # not a slot: the baseline, a headline, an approval
            self._show_progress(detail if stage == "waiting" else f"{stage} {detail}".strip())

    def _show_progress(self, progress: str) -> None:
        """Show the phase and the progress of a verdict without a slot; "" shows the phase alone."""
        campaign = self.reader.campaign(self.setup.id)
        if campaign is None:
            return
        if campaign.phase != self._shown:
            self._phase = campaign.phase
        phase = phase_of(self._phase)
        self._shown = in_phase(phase, progress) if phase and progress else progress or self._phase
        if self._shown != campaign.phase:
            self.writer.tick_campaign(self.setup.id, phase=self._shown)


def _fleet(setup: Setup, messages: queue.Queue[object]) -> Fleet:
    manifest = setup.manifest
    target = setup.target
    cards = [(device, WarmStart(None) if isinstance(target, CommandTarget) else
              harness_client.warm_start(target, device, manifest.python, manifest.env))
             for device in setup.devices]
    return Fleet(cards, retry_s=manifest.gpu.retry_s, limit_s=manifest.gpu.limit_s,
                 news=messages.put)


def count_looks(reader: Reader, campaign: str) -> int:
    """Return how many verdicts on candidates are recorded: only those spend error rate."""
    candidates = {candidate.id for candidate in reader.candidates(campaign)}
    return sum(row.candidate in candidates for row in reader.verdicts(campaign))
