"""Evaluate a candidate: from its tree to a verdict. Raises for bad tasks, not for bad candidates.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.case import Case, Errors
from harness.compile.c_compiler import BuildError
from harness.compile.device_code.device_build import for_people
from harness.compile.kernel import Kernel, imports_triton
from harness.correctness.check import CandidateFailed, CorrectnessCheck
from harness.correctness.tolerance import Tolerance
from harness.devices.device import Device
from harness.devices.monitoring.telemetry_sources import ONE_PROCESS
from harness.evaluate import device_limits, project_tests, task_limits, verdict_rows
from harness.evaluate.candidate_audit import CandidateAudit
from harness.evaluate.measure import Measurement
from harness.evaluate.verdict_rows import EvaluationResults
from harness.formats.json_codec import to_json
from harness.formats.text import plain
from harness.isolation import guard, raw_outputs
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import PeerDied, PeerError
from harness.isolation.zygote_client import Zygote
from harness.roofline import measured_peaks, predictor, roofline
from harness.roofline.ceilings import Ceilings
from harness.roofline.roofline import Roofline
from harness.runners import kernel_spans, process_home
from harness.runners.kept_oracle import OracleShelf
from harness.runners.kernel_spans import CallProfile
from harness.runners.oracle_client import Oracle
from harness.runners.profile_cache import ProfileCache
from harness.runners.session import Session
from harness.runners.slots.case_memory import CaseMemory
from harness.settings import Settings, Trees
from harness.tasks.target import Target
from harness.timing.paired_timing import ClassTiming
from harness.verdict import Evidence, Finding, Verdict, rejected

Progress = Callable[[str, str, float | None], None]
"""Called with the stage, a detail, and the share that is done (0 to 1) where it is known."""


def evaluate(target: Target, trees: Trees, device: Device, settings: Settings, *,
             progress: Progress | None = None, cancel: threading.Event | None = None,
             zygote: Zygote | None = None, shelf: OracleShelf | None = None) -> Verdict:
    """Judge a candidate against the incumbent; a running zygote and a kept oracle make it faster.

    Returns a Verdict for any candidate. Raises OracleError when the reference fails,
    EnvironmentFault when the machine fails, InputError for what cannot be predicted, and Cancelled.
    """
    return Evaluation(target, trees, device, settings, progress, cancel, zygote,
                      shelf).run()


class Evaluation:
    """One evaluation: build both sides, check the candidate, time the pair, write the verdict."""

    def __init__(self, target: Target, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None,
                 zygote: Zygote | None = None, shelf: OracleShelf | None = None) -> None:
        self.trees, self.settings = trees, settings
        self._declared_target = target
        self.card = predictor.card_for(settings.predict, target.language)
        self.session = Session(target, device, settings, cancel, zygote,
                               base=Path(trees.reference), shelf=shelf,
                               has_triton=imports_triton(target, trees.candidate, trees.incumbent))
        self.target = self.session.target
        self.audit = CandidateAudit(self.target, trees)
        self._progress = progress or (lambda stage, detail, done: None)
        self._cold = settings.plan.cache == "cold"
        self._incumbent_profiles: Mapping[str, CallProfile] = {}
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.evidence: list[Evidence] = []

    def run(self) -> Verdict:
        began = time.monotonic()
        self._note_conditions()
        try:
            with self.session:
                verdict = self._judge()
        except CandidateFailed as failure:
            verdict = device_limits.not_judged(self.target, failure) or rejected(str(failure))
            if failure.fault and not verdict.not_judged:
                self.evidence.append(Evidence(kind="fault", detail=failure.fault))
        self._keep_findings(verdict)
        if problem := self.session.runners.unconfined:
            self.notes.append("candidates are not confined: inside namespaces the GPU cannot be "
                              f"reached: {plain(problem, 200)}")
        return replace(
            verdict, notes=tuple(self.notes), transfer=self.audit.transfer,
            evidence=tuple(self.evidence),
            audit=(*self.audit.findings, *self.findings, *verdict.audit),
            device=self.session.device.name, candidate_id=self.settings.candidate_id,
            incumbent_tree=self.settings.incumbent_tree, alpha=self.settings.plan.alpha,
            effort=self.settings.plan.effort,
            wall_s=round(time.monotonic() - began, 3))

    def _keep_findings(self, verdict: Verdict) -> None:
        """Write for people what failed, and the kernels' profiles, to the raw outputs."""
        failing = [f"class {row.config_class}: {row.note}" for row in verdict.rows
                   if not row.correct]
        raw_outputs.keep("failed-checks.txt", "".join(
            f"{line}\n" for line in [*filter(None, [verdict.rejected_reason]), *failing]))
        profiles = {f"{side} {name}": profile for (side, name), profile
                    in dict(self.session.runners.profiles).items()}
        if profiles:
            raw_outputs.keep(raw_outputs.PROFILE, to_json(profiles))

    def _note_conditions(self) -> None:
        if effort := self.settings.plan.describe_effort():
            self.notes.append(effort)
        self.notes += task_limits.weaker_checks(self.target)
        self.findings += task_limits.findings(self.target)
        if self.session.any_mode:
            self.notes.append("the baseline or the build flags set the processor's floating-point "
                              "mode, so a kernel may leave it changed")
        self.evidence += [Evidence(kind="card", detail=f"measured on {card.id}, {card.uuid}")
                          for card in self.session.device.cards if card.kind != "cpu"]
        if self.session.in_process:
            self.notes.append(self.session.mode.note or ONE_PROCESS)
        if problem := guard.confinement_problem():
            self.notes.append(f"candidates are not confined on this machine: {problem}")

    def _judge(self) -> Verdict:
        """Audit, build, check and time the candidate. Raises CandidateFailed."""
        session = self.session
        if self.settings.static_audit:
            self._progress("auditing", "the candidate's sources", None)
            self.audit.run()
        candidate = self._build("candidate")
        incumbent = self._build("incumbent")
        self.evidence += predictor.compiler_evidence(for_people(candidate.resources))
        if session.lacks:
            return device_limits.compiled_only(self.target, session.lacks)
        session.runners.starter.one_queue = candidate.one_stream and incumbent.one_stream
        session.runners.prestart(candidate, 1)
        profiles = ProfileCache(Path(self.settings.scratch) / "profiles", incumbent)
        self._incumbent_profiles = profiles.load()
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(session.working(self._wait))
            self._progress("loading", "the reference", None)
            oracle = stack.enter_context(session.oracle(Path(self.trees.reference), held))
            self.evidence += oracle.evidence
            if held is not None and not session.in_process:
                session.runners.create_contexts(held, candidate)
            tolerance = Tolerance(session, oracle, Path(self.trees.reference),
                                  {self.trees.incumbent: incumbent})
            check = CorrectnessCheck(
                session, oracle, tolerance, self._progress,
                on_first=lambda case: self._prepare_timing(candidate, incumbent, case, oracle,
                                                           held))
            check.should_hold_out = candidate.identity != incumbent.identity
            if self.audit.should_trace:
                check.trace_weights = self.audit.weights
            try:
                return self._check_and_time(check, candidate, incumbent, held)
            finally:
                session.runners.end_waiting()
                self.findings += check.findings
                self.notes += check.notes
                self.evidence += check.evidence
                profiles.save({name: profile for (side, name), profile
                               in dict(session.runners.profiles).items() if side == incumbent.name})

    def _build(self, side: str) -> Kernel:
        self._progress("building", side, None)
        is_candidate = side == "candidate"
        try:
            return self.session.make(
                Path(self.trees.candidate if is_candidate else self.trees.incumbent), side)
        except BuildError as error:
            owner = "" if is_candidate else "the incumbent "
            raise CandidateFailed(f"{owner}does not compile: {error.what}",
                                  fault="build" if is_candidate else "") from None

    def _prepare_timing(self, candidate: Kernel, incumbent: Kernel, case: Case,
                        oracle: Oracle, held: DeviceLock | None) -> None:
        """Start the runners that timing needs while the candidate compiles for its check.

        Not earlier: contexts are created one after another, and those of these runners would delay
        the one for the check. The incumbent is profiled once, not for each candidate.
        """
        runners = self.session.runners
        if held is not None and not self.session.in_process and self._is_timed(
                candidate, incumbent):
            profiled = (candidate,) if self._incumbent_profiles else (incumbent, candidate)
            for kernel in profiled:
                runners.profile(kernel, held, case, oracle)
            pairs = self.session.fitted(self.settings.plan).looks[0]
            for kernel in (incumbent, candidate):
                runners.prestart(kernel, pairs, asleep=True)
            runners.create_contexts(held)

    def _check_and_time(self, check: CorrectnessCheck, candidate: Kernel, incumbent: Kernel,
                        held: DeviceLock | None) -> Verdict:
        if not device_limits.run_check(self.session, check, candidate, held):
            return self._verdict(check.errors, {})
        self.audit.add_trace(check.steps)
        if not self.session.measurable:
            self.notes.append(device_limits.interpreted_note(self.session.target))
            return self._predict(self._verdict(check.errors, {}))
        if self.card is not None:
            self.notes.append(f"no prediction for {self.card.name}: this machine can measure")
        if not self._is_timed(candidate, incumbent):
            self.notes.append("identical to the incumbent: a tie, not timed")
            return self._verdict(check.errors, {}, same=True)
        self._run_project_tests(held)
        return self._time(check, candidate, incumbent, held)

    def _is_timed(self, candidate: Kernel, incumbent: Kernel) -> bool:
        return self.session.measurable and (
            candidate.identity != incumbent.identity or self.settings.always_time)

    def _compile_incumbent(self, check: CorrectnessCheck, candidate: Kernel, incumbent: Kernel,
                           held: DeviceLock | None) -> None:
        """Compile the incumbent's kernels once, as the check did the candidate's.

        Otherwise each of its timed processes would compile them. Does nothing if profiling has
        compiled them already, or if the candidate's code leaves nothing to compile.
        """
        session = self.session
        session.runners.wait_profiles()
        if not process_home.has_compiled(candidate) or process_home.has_compiled(incumbent):
            return
        with contextlib.suppress(PeerError, PeerDied), session.runners.start(
                incumbent, lock=held) as runner:  # timing will report it
            for case in check.cases.values():
                memory = CaseMemory(check.oracle, runner, case)
                memory.place(case)
                memory.run()
                memory.close()

    def _run_project_tests(self, held: DeviceLock | None) -> None:
        for name, command in self.settings.tests:
            self._progress("testing", f"the project's {name}", None)
            if why := project_tests.failure(command, Path(self.trees.candidate), self.session,
                                            held, self.settings.test_wall_s):
                raise CandidateFailed(f"the project's {name} fail: {why}", fault="tests")

    def _time(self, check: CorrectnessCheck, candidate: Kernel, incumbent: Kernel,
              held: DeviceLock | None) -> Verdict:
        session = self.session
        self._compile_incumbent(check, candidate, incumbent, held)
        limits = device_limits.ceilings_of(session, self._wait)
        peaks = device_limits.peaks_of(
            session, held, lambda: self._progress("measuring", "the card's peak rates", None))
        measurement = Measurement(session, check, self._progress)
        try:
            timings = measurement.run(candidate, incumbent, held)
        finally:
            self.findings += measurement.findings
            self.evidence += measurement.evidence
        earlier = {(incumbent.name, name): profile
                   for name, profile in self._incumbent_profiles.items()}
        profiles = {**earlier, **session.runners.profiles}
        self.evidence += kernel_spans.evidence(
            profiles, [each.name for each in self.target.classes],
            earlier=[incumbent.name] if earlier else [])
        if self.settings.plan.score == "kernel" and not session.several:
            self.findings += kernel_spans.too_short(profiles, timings)
        self.evidence += measured_peaks.evidence(peaks, session.device, self.target)
        reach = roofline.of_device(session.device, self.target, limits, peaks, cold=self._cold)
        return self._verdict(check.errors, timings, limits, reach)

    def _predict(self, verdict: Verdict) -> Verdict:
        """Add predicted latencies if the settings name a card. Raises CandidateFailed."""
        if self.card is None or not verdict.correct:
            return verdict
        self._progress("predicting", self.card.name, None)
        prediction = predictor.predict_tree(
            self._declared_target, Path(self.trees.candidate), self.card, self.session.place,
            cold=self._cold)
        self.evidence += prediction.evidence
        if prediction.refusal:
            raise CandidateFailed(prediction.refusal)
        self.notes.append(prediction.note)
        return predictor.with_predictions(verdict, prediction)

    def _verdict(self, errors: Mapping[str, Errors], timings: Mapping[str, ClassTiming],
                 limits: Ceilings | None = None, reach: Roofline | None = None, *,
                 same: bool = False) -> Verdict:
        return verdict_rows.verdict(EvaluationResults(
            target=self.target, plan=self.settings.plan, errors=errors, timings=timings,
            ceilings=limits, roofline=reach, on_cpu=self.session.on_cpu, same=same))

    def _wait(self, text: str) -> None:
        self._progress("waiting", text, None)
