"""`evaluate`: from a candidate's tree to a verdict; it raises for bad tasks, not candidates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from harness.audit import audit
from harness.audit.transfer import looks_like_weight, transfer
from harness.case import Case, Errors
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.correctness.check import CandidateFailed, CorrectnessCheck
from harness.correctness.tolerance import Tolerance
from harness.devices.device import Device
from harness.devices.monitoring.telemetry_nvidia import ONE_PROCESS
from harness.evaluate import project_tests, verdict_rows
from harness.evaluate.measure import Measurement
from harness.evaluate.verdict_rows import EvaluationResults
from harness.formats.text import plain
from harness.isolation import device_lock, guard
from harness.isolation.zygote_client import Zygote
from harness.roofline import ceilings, measured_peaks, predictor, roofline
from harness.roofline.ceilings import Ceilings
from harness.roofline.measured_peaks import GpuCeilings
from harness.roofline.roofline import Roofline
from harness.runners import kernel_spans
from harness.runners.kernel_spans import CallProfile
from harness.runners.profile_cache import ProfileCache
from harness.runners.session import Session
from harness.settings import Settings, Trees
from harness.target import Target
from harness.timing.paired_timing import ClassTiming
from harness.verdict import Evidence, Finding, TraceStep, Transfer, Verdict, rejected

Progress = Callable[[str, str, float | None], None]
"""Called with the stage, a few words, and how far it is (0 to 1) where that is known."""


def evaluate(target: Target, trees: Trees, device: Device, settings: Settings, *,
             progress: Progress | None = None, cancel: threading.Event | None = None,
             zygote: Zygote | None = None) -> Verdict:
    """Judge a candidate against the incumbent; with a zygote that is running already, sooner.

    Returns a Verdict whatever the candidate does. Raises OracleError when the reference fails,
    EnvironmentFault when the machine does, InputError for what cannot be predicted and Cancelled
    when it was cancelled.
    """
    return Evaluation(target, trees, device, settings, progress, cancel, zygote).run()


class Evaluation:
    """One evaluation: build both sides, check the candidate, time the pair, write the verdict."""

    def __init__(self, target: Target, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None,
                 zygote: Zygote | None = None) -> None:
        self.trees, self.settings = trees, settings
        self.given, self.card = target, predictor.card_for(settings.predict, target.language)
        self.stage = Session(target, device, settings, cancel, zygote)
        self.target = self.stage.target
        self._progress = progress or (lambda stage, detail, done: None)
        self.transfer: Transfer | None = None
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.evidence: list[Evidence] = []
        self._known: Mapping[str, CallProfile] = {}

    def run(self) -> Verdict:
        began = time.monotonic()
        self.notes += declared(self.target)
        self.evidence += [Evidence(kind="card", detail=f"measured on {card.id}, {card.uuid}")
                          for card in self.stage.device.cards if card.kind != "cpu"]
        if self.stage.in_process:
            self.notes.append(self.stage.mode.note or ONE_PROCESS)
        if reason := guard.confinement_problem():
            self.notes.append(f"candidates are not confined on this machine: {reason}")
        try:
            with self.stage:
                verdict = self._judge()
        except CandidateFailed as failure:
            verdict = rejected(str(failure))
            if failure.fault:
                self.evidence.append(Evidence(kind="fault", detail=failure.fault))
        if lost := self.stage.runners.unconfined:
            self.notes.append("candidates are not confined: inside namespaces the GPU says "
                              f"{plain(lost, 200)}")
        return replace(
            verdict, notes=tuple(self.notes), transfer=self.transfer, evidence=tuple(self.evidence),
            audit=(*self.findings, *verdict.audit), device=self.stage.device.name,
            candidate_id=self.settings.candidate_id, incumbent_tree=self.settings.incumbent_tree,
            alpha=self.settings.plan.alpha, wall_s=round(time.monotonic() - began, 3))

    def _judge(self) -> Verdict:
        stage = self.stage
        self._audit()
        candidate = self._build("candidate")
        incumbent = self._build("incumbent")
        stage.runners.one_queue = candidate.one_stream and incumbent.one_stream
        stage.runners.expect(candidate, 1)
        profiles = ProfileCache(Path(self.settings.scratch) / "profiles", incumbent)
        self._known = profiles.kept()
        with stage.working(self._waiting) as held, \
                stage.oracle(Path(self.trees.reference), held) as oracle:
            if held is not None and not stage.in_process:
                stage.runners.settle(held, candidate)
            budget = Tolerance(stage, oracle, Path(self.trees.reference),
                            {self.trees.incumbent: incumbent})
            check = CorrectnessCheck(stage, oracle, budget, self._progress,
                          on_first=lambda case: self._get_ready(candidate, incumbent, case, held))
            if self.transfer is not None and self.transfer.remembers and \
                    self.target.language != "c":
                check.trace_weights = self._weights
            try:
                return self._checked(check, candidate, incumbent, held)
            finally:
                stage.runners.abandon()
                self.findings += check.findings
                self.notes += check.notes
                profiles.keep({name: one for (side, name), one in dict(stage.runners.spans).items()
                               if side == incumbent.name})

    def _get_ready(self, candidate: Kernel, incumbent: Kernel, case: Case,
                   held: device_lock.DeviceLock | None) -> None:
        """Have ready what the measurement needs, while the candidate compiles for its check.

        Not before: contexts are made one after another, and its own had to wait for theirs.
        """
        runners = self.stage.runners
        if held is not None and self.stage.measurable and not self.stage.in_process:
            for kernel in self._profiled(candidate, incumbent):
                runners.rehearse(kernel, held, case)
            for kernel in (incumbent, candidate):
                runners.expect(kernel, self.settings.plan.looks[0], asleep=True)
            runners.settle(held)

    def _profiled(self, candidate: Kernel, incumbent: Kernel) -> tuple[Kernel, ...]:
        """Return the sides to be profiled: the incumbent once, and not for each candidate."""
        return (candidate,) if self._known else (incumbent, candidate)

    def _audit(self) -> None:
        if not self.settings.static_audit:
            return
        self._progress("auditing", "the candidate's sources", None)
        found, self.transfer = audit(self.target, Path(self.trees.candidate),
                                     Path(self.trees.reference))
        self._found(found)

    def _found(self, found: Sequence[Finding]) -> None:
        self.findings += found
        for finding in found:
            if finding.severity == "reject":
                raise CandidateFailed(f"audit: {finding.detail}")

    def _traced(self, steps: tuple[TraceStep, ...] | None) -> None:
        """Audit again what the candidate remembers, now that it was seen over steps."""
        if self.transfer is None or steps is None:
            return
        said = self.transfer.finding()
        self.transfer = transfer(self.target, Path(self.trees.candidate),
                                 Path(self.trees.reference), weights=self._weights, trace=steps)
        seen = self.transfer.finding()
        if seen != said:
            self.findings = [one for one in self.findings if one != said]
            self._found([seen] if seen is not None else [])

    @property
    def _weights(self) -> set[str]:
        """The arguments that are weights, guessed by their names where the task names none."""
        return {arg.name for arg in self.target.args if arg.weight} or {
            arg.name for arg in self.target.args if looks_like_weight(arg.name)}

    def _checked(self, check: CorrectnessCheck, candidate: Kernel, incumbent: Kernel,
                 held: device_lock.DeviceLock | None) -> Verdict:
        stage = self.stage
        if not check.run(candidate, held):
            return self._verdict(check.errors, {})
        self._traced(check.steps)
        if not stage.measurable:
            self.notes.append("no GPU here: correctness by Triton's interpreter, which shows no "
                              "races; not timed")
            return self._predicted(self._verdict(check.errors, {}))
        if self.card is not None:
            self.notes.append(f"this machine measures: nothing is predicted for {self.card.name}")
        if candidate.identity == incumbent.identity and not self.settings.always_time:
            self.notes.append("runs the incumbent's very code: a tie, not timed")
            return self._verdict(check.errors, {}, same=True)
        self._test(held)
        limits, peaks = self._ceilings(), self._peaks(held)
        measurement = Measurement(stage, check, self._progress)
        try:
            timings = measurement.run(candidate, incumbent, held)
        finally:
            self.findings += measurement.findings
            self.evidence += measurement.evidence
        seen = {**{(incumbent.name, name): one for name, one in self._known.items()},
                **stage.runners.spans}
        self.evidence += kernel_spans.evidence(seen, [c.name for c in self.target.classes],
                                        earlier=[incumbent.name] if self._known else [])
        if self.settings.plan.score == "kernel" and not stage.several:
            self.findings += kernel_spans.too_short(seen, timings)
        self.evidence += measured_peaks.evidence(peaks, stage.device, self.target)
        return self._verdict(check.errors, timings, limits, roofline.of_device(
            stage.device, self.target, limits, peaks, cold=self.settings.plan.cache == "cold"))

    def _predicted(self, verdict: Verdict) -> Verdict:
        """Fill in what is predicted for a card that need not be here, if that was asked for."""
        if self.card is None or not verdict.correct:
            return verdict
        self._progress("predicting", self.card.name, None)
        told = predictor.predict_tree(
            self.given,
            Path(self.trees.candidate),
            self.card,
            self.stage.place,
            cold=self.settings.plan.cache == "cold",
            yields=self.stage.yields,
            cancel=self.stage.cancel,
        )
        self.evidence += told.evidence
        if told.refusal:
            raise CandidateFailed(told.refusal)
        self.notes.append(told.note)
        return predictor.with_predictions(verdict, told)

    def _test(self, held: device_lock.DeviceLock | None) -> None:
        for name, command in self.settings.tests:
            self._progress("testing", f"the project's {name}", None)
            if why := project_tests.failure(command, Path(self.trees.candidate), self.stage, held):
                raise CandidateFailed(f"the project's {name} fail: {why}", fault="tests")

    def _build(self, side: str) -> Kernel:
        self._progress("building", side, None)
        tree = Path(self.trees.candidate if side == "candidate" else self.trees.incumbent)
        try:
            return self.stage.make(tree, side)
        except BuildError as error:
            who = "" if side == "candidate" else "the incumbent "
            raise CandidateFailed(f"{who}does not compile: {error.what}",
                         fault="" if who else "build") from None

    def _waiting(self, text: str) -> None:
        self._progress("waiting", text, None)

    def _ceilings(self) -> Ceilings | None:
        stage = self.stage
        with stage.lock(self._waiting) if stage.on_cpu else nullcontext():
            return ceilings.of_device(stage.device, self.target, stage.folder("ceilings"))

    def _peaks(self, held: device_lock.DeviceLock | None) -> GpuCeilings | None:
        """Return the card's measured peaks, measured now if they never were."""
        stage = self.stage
        if stage.on_cpu or stage.several:
            return None  # what is measured is one card
        found = measured_peaks.cached(stage.device)
        if found is not None or held is None or stage.in_process:
            return found  # a card that takes one process has it already
        self._progress("measuring", "what the card reaches", None)
        stage.runners.rehearsed()
        stage.runners.settled()
        return measured_peaks.get_or_measure(stage.device, stage.place, held, zygote=stage.zygote,
                                 cancel=stage.cancel)

    def _verdict(self, errors: Mapping[str, Errors], timings: Mapping[str, ClassTiming],
                 limits: Ceilings | None = None, reach: Roofline | None = None, *,
                 same: bool = False) -> Verdict:
        seen = EvaluationResults(
            target=self.target,
            plan=self.settings.plan,
            errors=errors,
            timings=timings,
            ceilings=limits,
            roofline=reach,
            on_cpu=self.stage.on_cpu,
            same=same,
        )
        rows, found = verdict_rows.rows(seen)
        verdict = Verdict(valid=True, correct=all(row.correct for row in rows), rows=rows,
                          audit=found)
        return verdict_rows.with_overall(verdict, seen)


def declared(target: Target) -> list[str]:
    """Return what the task declares of itself that makes a check weaker."""
    notes = []
    if target.stochastic:
        notes.append("the task is stochastic: that two runs differ counts for nothing")
    if not target.float64:
        notes.append("the reference has no float64 form: expected values are of its own precision")
    if target.precision is not None:
        notes.append(f"the task allows {target.precision} for float32")
    return notes
