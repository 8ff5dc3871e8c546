"""Verdicts on the engine's behalf: one at a time a device, each from a harness process."""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import replace

import msgspec

from engine import harness_process, worktree
from engine.campaign import Setup
from engine.pool import Ticked
from harness.errors import KoptError, Refused, of_os
from harness.evaluate import Settings, Trees
from harness.requests import EvaluateRequest
from harness.verdict import Verdict
from harness.zygote import WarmStart

UNTRUSTED = ("io", "build", "home-candidate")
"""Parts of the scratch folder that candidates write in."""

log = logging.getLogger("kopt.engine")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that is wanted: two trees, why, and at which error rate."""

    purpose: str
    candidate: str
    slot: str
    candidate_tree: str
    incumbent_tree: str
    alpha: float
    always_time: bool = False


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict has come, or the fault that kept it from coming."""

    job: Job
    verdict: Verdict | None = None
    fault: KoptError | None = None


class Verifier:
    """A thread that answers jobs in order; results go to the engine's queue."""

    def __init__(self, setup: Setup, messages: queue.Queue[object], warm: WarmStart) -> None:
        self._setup, self._warm = setup, warm
        self._messages = messages
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self.cancel = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verifier", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Drop what is queued, end what runs, and wait for the thread."""
        self.cancel.set()
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self.cancel.is_set():
            try:
                verdict = self._verdict(job)
            except KoptError as error:
                self._messages.put(Verified(job=job, fault=error))
            except OSError as error:
                self._messages.put(Verified(job=job, fault=of_os(error)))
            except Exception as error:  # whatever it is, the engine must not wait for ever
                log.exception("no verdict on %s", job.candidate)
                self._messages.put(Verified(job=job, fault=Refused(
                    f"internal error: {type(error).__name__}: {error}")))
            else:
                if not self.cancel.is_set():
                    self._messages.put(Verified(job=job, verdict=verdict))

    def _verdict(self, job: Job) -> Verdict:
        setup = self._setup
        for left in UNTRUSTED:  # one candidate must not find what another has left
            worktree.remove(setup.folder.path / "scratch" / "verify" / left)
        plan = setup.manifest.decision.plan(job.alpha)
        if setup.manifest.budget.pairs is not None:
            looks = [n for n in plan.looks if n <= setup.manifest.budget.pairs]
            plan = replace(plan, looks=tuple(looks) or (4,))
        request = EvaluateRequest(
            target=setup.target, device=setup.device.id,
            trees=Trees(candidate=str(setup.tree(job.candidate_tree)),
                        incumbent=str(setup.tree(job.incumbent_tree)),
                        reference=str(setup.tree(setup.lineage.base))),
            settings=Settings(scratch=str(setup.folder.scratch("verify")), plan=plan,
                              python=setup.manifest.python, env=setup.manifest.env,
                              candidate_id=job.candidate, incumbent_tree=job.incumbent_tree,
                              always_time=job.always_time,
                              test_command=setup.manifest.test_command))
        return harness_process.evaluate(
            request, cancel=self.cancel, warm=self._warm, progress=lambda p: self._messages.put(
                Ticked(slot=job.slot, stage=p.stage, detail=p.detail, done=p.done)))
