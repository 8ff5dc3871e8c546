"""Verdict requests: answered in order, one at a time per device, each by a harness process."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.campaign import artifacts, baseline_cache
from engine.campaign.setup import Setup
from engine.manifest import benchmark_target
from engine.manifest.schema import Manifest
from engine.repository import worktree
from engine.task import SlotProgress
from engine.verify import canary, gate, harness_client, reference_lines
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import FleetDevice
from engine.verify.harness_client import HarnessFault
from harness.benchmark.runs import stopping_rule
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import KoptError, Refused, os_fault
from harness.requests import EndToEndRequest, EvaluateRequest, Progress, ReportedRequest
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import Verdict

ORACLE = "io"
"""The folder that an oracle writes to; kept while the oracle waits: no candidate can reach it."""
UNTRUSTED = (ORACLE, "build", "home-candidate", "runners", "outputs")
"""Parts of the scratch folder that each verdict starts without: what earlier ones left there."""
FULL = ("baseline", "headline", "final")
"""Purposes that run the whole benchmark even where there is a quick command."""
SCREENING = "screening"
"""Purpose of a quick verdict for a slot's worker: its outputs are not kept."""

log = logging.getLogger("kopt.engine")


class VerdictRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to compare two trees, at an error rate `alpha`; `purpose` says what for."""

    purpose: str
    candidate: str
    slot: str
    candidate_tree: str
    incumbent_tree: str
    alpha: float
    always_time: bool = False
    round: int = 0
    """The round in whose folder its outputs are kept."""
    left_s: float | None = None
    """Seconds that all runs of the whole program may take together."""
    run_s: float | None = None
    """The `Settings.wall_s` of its harness."""

    def after(self, seconds: float) -> VerdictRequest:
        """Return the request with `seconds` subtracted from `left_s`."""
        return self if self.left_s is None else msgspec.structs.replace(
            self, left_s=max(0.0, self.left_s - seconds))


class VerdictResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: a verdict, or the fault that prevented one."""

    job: VerdictRequest
    verdict: Verdict | None = None
    fault: KoptError | None = None


def commands_of(manifest: Manifest, purpose: str) -> tuple[str, str]:
    """Return the test commands to run before and after timing, "" for none.

    The headline runs only the full tests, before timing. The baseline runs both, so that no
    candidate is blamed for a test that never passed.
    """
    tests, full = manifest.test_command, manifest.full_test_command
    if purpose == "headline":
        return full or tests, ""
    return tests, full if purpose == baseline_cache.BASELINE else ""


class Verifier:
    """Threads that answer requests in order, one for each device; results go to `messages`.

    If a verdict's processes printed or wrote something, its Artifacts are put there first.
    """

    def __init__(self, setup: Setup, messages: queue.Queue[object], fleet: Fleet) -> None:
        self.setup, self._fleet = setup, fleet
        self._messages = messages
        self._jobs: queue.Queue[VerdictRequest | None] = queue.Queue()
        self.cancel = threading.Event()
        self._threads = [threading.Thread(target=self._run, name=f"verifier-{number}", daemon=True)
                         for number in range(len(fleet.cards))]
        for thread in self._threads:
            thread.start()

    def submit(self, job: VerdictRequest) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Drop queued requests, cancel running ones, and wait for the threads."""
        self.cancel.set()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self.cancel.is_set():
            try:
                verdict = self._verdict(job)
            except (KoptError, OSError) as error:
                fault = os_fault(error) if isinstance(error, OSError) else error
                self._messages.put(VerdictResult(job=job, fault=fault))
            except Exception as error:  # without an answer the engine would wait forever
                log.exception("no verdict on %s", job.candidate)
                self._messages.put(VerdictResult(job=job, fault=Refused(
                    f"internal error: {type(error).__name__}: {error}")))
            else:
                if not self.cancel.is_set():
                    self._messages.put(VerdictResult(job=job, verdict=verdict))

    def _verdict(self, job: VerdictRequest) -> Verdict:
        began = time.monotonic()
        return self._fleet.run(
            "verdict", lambda card: self._verdict_on(card, job.after(time.monotonic() - began)),
            cancel=self.cancel,
            on_wait=lambda text: self._tick(job, Progress(stage="waiting", detail=text)),
            needs_recheck=gate.needs_recheck, void_reason=gate.void_reason)

    def _verdict_on(self, card: FleetDevice, job: VerdictRequest) -> Verdict:
        setup = self.setup
        scratch = clean_scratch(setup, f"verify-{self._fleet.cards.index(card)}",
                                keep=(ORACLE,) if card.shelf.holds_one else ())
        request = harness_request(setup, job, card.device.id, scratch,
                                  setup.tree(job.candidate_tree))
        try:
            verdict = self._ask_harness(card, job, request)
            if baseline_cache.may_be_cold_timeout(verdict, setup.target.language) \
                    and setup.command is None:
                verdict = self._ask_harness(card, job, request)
        finally:
            self._keep_outputs(card, job, Path(request.settings.outputs))
        if job.purpose == baseline_cache.BASELINE:
            baseline_cache.keep(setup.folder.path, scratch / "home-incumbent")
        return verdict

    def _keep_outputs(self, card: FleetDevice, job: VerdictRequest, outputs: Path) -> None:
        if self.cancel.is_set():
            return
        try:
            stored = artifacts.pack(outputs, self.setup.folder, candidate=job.candidate,
                                    purpose=job.purpose, round=job.round, device=card.device.id)
        except OSError as error:  # a full disk must not prevent the verdict
            log.warning("the outputs of %s are not kept: %s", job.candidate, error)
            return
        if stored is not None:
            self._messages.put(stored)

    def _ask_harness(self, card: FleetDevice, job: VerdictRequest,
                     request: EvaluateRequest | ReportedRequest | EndToEndRequest) -> Verdict:
        """Ask the harness; after a fault that may pass, such as a kill, ask once more."""
        def ask() -> Verdict:
            return harness_client.evaluate(request, cancel=self.cancel, warm=card.warm,
                                           shelf=card.shelf, limit_s=reference_lines.LIMIT_S
                                           if job.purpose == reference_lines.PURPOSE else None,
                                           progress=lambda progress: self._tick(job, progress))

        try:
            return ask()
        except HarnessFault as fault:
            if not fault.may_pass or self.cancel.is_set() \
                    or job.purpose in (baseline_cache.BASELINE, reference_lines.PURPOSE):
                raise
            log.warning("trying %s once more: %s", job.candidate, fault)
            self._tick(job, Progress(stage="waiting", detail=f"trying once more: {fault.what}"))
            return ask()

    def _tick(self, job: VerdictRequest, progress: Progress) -> None:
        self._messages.put(SlotProgress(slot=job.slot, stage=progress.stage, detail=progress.detail,
                                        done=progress.done))


def clean_scratch(setup: Setup, name: str, keep: Container[str] = ()) -> Path:
    """Return a scratch folder of the harness without what earlier candidates left there."""
    scratch = setup.folder.scratch(name)
    for part in UNTRUSTED:
        if part not in keep:
            worktree.remove(scratch / part)
    if setup.command is None:
        baseline_cache.seed(setup.folder.path, scratch / "home-candidate")
    return scratch


def harness_request(setup: Setup, job: VerdictRequest, device: str, scratch: Path,
                    candidate: Path) -> EvaluateRequest | ReportedRequest | EndToEndRequest:
    """Return the harness's request: for the whole program, a benchmark, or the kernel.

    `candidate` is the folder with the candidate's tree.
    """
    trees = Trees(candidate=str(candidate), incumbent=str(setup.tree(job.incumbent_tree)),
                  reference=str(setup.tree(setup.repo.base)))
    tests, all_tests = commands_of(setup.manifest, job.purpose)
    settings = Settings(scratch=str(scratch), plan=_plan(setup, job),
                        python=setup.manifest.python, env=setup.manifest.env,
                        candidate_id=job.candidate, incumbent_tree=job.incumbent_tree,
                        always_time=job.always_time, wall_s=job.run_s,
                        static_audit=job.purpose != reference_lines.PURPOSE,
                        test_command=tests, full_test_command=all_tests,
                        test_wall_s=setup.manifest.limits.test_s,
                        canary="" if job.purpose != canary.PURPOSE else
                        "emptied" if job.candidate == canary.EMPTIED else "broken",
                        outputs="" if job.purpose == SCREENING else f"{scratch}/outputs",
                        warm_cache=baseline_cache.warm_for(setup.folder.path, job.purpose),
                        keep_cache=baseline_cache.keep_for(setup.folder.path, job.purpose))
    if job.purpose == "e2e":
        sealed = setup.target.frozen if isinstance(setup.target, CommandTarget) else ()
        return EndToEndRequest(target=replace(
            benchmark_target.end_to_end(setup.manifest, sealed), left_s=job.left_s),
                               trees=trees, device=device, settings=settings)
    if isinstance(setup.target, CommandTarget):
        target = setup.target if job.purpose not in FULL else \
            replace(setup.target, quick_command="")
        return ReportedRequest(target=target, device=device, trees=trees, settings=settings)
    return EvaluateRequest(target=setup.target, device=device, trees=trees, settings=settings)


def _plan(setup: Setup, job: VerdictRequest) -> Plan:
    plan = setup.manifest.decision.plan(job.alpha)
    if job.purpose in (reference_lines.PURPOSE, SCREENING):
        plan = plan.with_effort("quick")
    max_pairs = setup.manifest.budget.pairs
    if setup.command is not None:
        return stopping_rule.plan_for(plan, max_pairs)
    if max_pairs is None or plan.effort == "quick":
        return plan
    return replace(plan, looks=tuple(n for n in plan.looks if n <= max_pairs) or (4,))
