"""`evaluate`: from a candidate's tree to a verdict; it raises for bad tasks, not candidates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from harness import guard, kernel, lock, roofline, summary
from harness.build_c import BuildError
from harness.devices import Device
from harness.guard import Limits
from harness.kernel import Kernel
from harness.oracle import DISTRIBUTIONS, Case, Errors, Oracle
from harness.peer import PeerDied, PeerError
from harness.roofline import Ceilings
from harness.runners import Runners, starts_ahead
from harness.summary import Seen
from harness.target import Target
from harness.text import plain
from harness.timing import GPU_BLOCK_NS, ClassTiming, Pairs, Plan, Tampered
from harness.verdict import Evidence, Finding, Verdict, rejected

Progress = Callable[[str, str, float | None], None]
"""Called with the stage, a few words, and how far it is (0 to 1) where that is known."""

CALL_LIMITS = Limits(wall_s=40.0, output_bytes=1 << 20, memory_bytes=8 << 30, file_bytes=4 << 30)
PYTHON_LIMITS = msgspec.structs.replace(CALL_LIMITS, wall_s=180.0)
GPU_LIMITS = Limits(wall_s=300.0, output_bytes=1 << 20, memory_bytes=32 << 30, file_bytes=8 << 30)


class Trees(msgspec.Struct, frozen=True, kw_only=True):
    """Folders with the project as the candidate, the incumbent and the baseline have it."""

    candidate: str
    incumbent: str
    reference: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to judge; the same for every candidate of a campaign but for `plan.alpha`."""

    scratch: str
    plan: Plan = Plan()
    python: str | None = None
    env: Mapping[str, str] = {}
    distributions: tuple[str, ...] = DISTRIBUTIONS
    candidate_id: str = ""
    incumbent_tree: str = ""
    wall_s: float | None = None
    """Seconds that one runner of a kernel may take, None for the usual of its kind."""
    always_time: bool = False
    """Also time a candidate that runs the incumbent's very code: a baseline, an A/A trial."""


def limits_for(target: Target, device: Device, settings: Settings) -> Limits:
    """Return what one runner may use."""
    limits = GPU_LIMITS if device.kind != "cpu" else \
        CALL_LIMITS if target.language == "c" else PYTHON_LIMITS
    return limits if settings.wall_s is None else msgspec.structs.replace(
        limits, wall_s=settings.wall_s)


class Failed(Exception):
    """The candidate failed in a way that ends its evaluation; the text is the reason."""


def evaluate(target: Target, trees: Trees, device: Device, settings: Settings, *,
             progress: Progress | None = None, cancel: threading.Event | None = None) -> Verdict:
    """Judge a candidate against the incumbent.

    Returns a Verdict whatever the candidate does. Raises OracleError when the reference fails,
    EnvironmentFault when the machine does and Stopped when it was cancelled.
    """
    return Evaluation(target, trees, device, settings, progress, cancel).run()


class Evaluation:
    """One evaluation: build both sides, check the candidate, time the pair, write the verdict."""

    def __init__(self, target: Target, trees: Trees, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None) -> None:
        self.target, self.trees, self.device, self.settings = target, trees, device, settings
        self._progress = progress or (lambda stage, detail, done: None)
        self._cancel = cancel
        self.on_cpu = device.kind == "cpu"
        self.measurable = not (self.on_cpu and target.language == "triton")
        self.place = kernel.place_on(device, target.language, scratch=settings.scratch,
                                     python=settings.python, env=settings.env)
        if self.place.interpret:
            self.target = target.interpretable()
        self.yields = lock.turnstile() if self.on_cpu else None
        self.runners = Runners(limits_for(target, device, settings), yields=self.yields,
                               ahead=starts_ahead(self.place, target.language), cancel=cancel)
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.evidence: list[Evidence] = []

    def run(self) -> Verdict:
        began = time.monotonic()
        if reason := guard.unconfined():
            self.notes.append(f"candidates are not confined on this machine: {reason}")
        try:
            with self.runners:
                verdict = self._judge()
            if self.runners.unconfined:
                verdict = msgspec.structs.replace(verdict, notes=(
                    *verdict.notes, "candidates are not confined: inside namespaces the GPU "
                    f"says {plain(self.runners.unconfined, 200)}"))
        except Failed as failure:
            verdict = rejected(str(failure), notes=tuple(self.notes), audit=tuple(self.findings))
        return msgspec.structs.replace(
            verdict, candidate_id=self.settings.candidate_id, device=self.device.name,
            incumbent_tree=self.settings.incumbent_tree, alpha=self.settings.plan.alpha,
            wall_s=round(time.monotonic() - began, 3))

    def _judge(self) -> Verdict:
        candidate = self._build("candidate")
        incumbent = self._build("incumbent")
        self.runners.expect(candidate, 2 if self.measurable else 1)
        self.runners.expect(incumbent, 1 if self.measurable else 0)
        held = None if self.on_cpu else self._lock()
        try:
            scratch = kernel.scratch_inside(Path(self.settings.scratch), "io")
            with Oracle(self.target, Path(self.trees.reference), scratch, self.place, lock=held,
                        yields=self.yields, cancel=self._cancel) as oracle:
                cases, errors = self._check(candidate, oracle, held)
                if not self._all_correct(errors):
                    return self._verdict(errors, {}, None)
                if not self.measurable:
                    self.notes.append("no GPU here: correctness by Triton's interpreter, which "
                                      "shows no races; not timed")
                    return self._verdict(errors, {}, None)
                if candidate.identity == incumbent.identity and not self.settings.always_time:
                    self.notes.append("runs the incumbent's very code: a tie, not timed")
                    return self._verdict(errors, {}, None, same=True)
                ceilings = self._ceilings(held)
                timings = self._time(candidate, incumbent, oracle, cases, held)
                return self._verdict(errors, timings, ceilings)
        finally:
            if held is not None:
                held.release()

    def _build(self, side: str) -> Kernel:
        self._progress("building", side, None)
        tree = Path(self.trees.candidate if side == "candidate" else self.trees.incumbent)
        try:
            return kernel.make(self.target, tree, side, self.place, yields=self.yields,
                               cancel=self._cancel)
        except BuildError as error:
            who = "" if side == "candidate" else "the incumbent "
            raise Failed(f"{who}does not compile: {error.what}") from None

    def _lock(self) -> lock.DeviceLock:
        name = lock.name_of(self.device.kind, self.device.uuid)
        return lock.acquire(name, shared_device=self.on_cpu, cancel=self._cancel,
                            on_wait=lambda text: self._progress("waiting", text, None))

    def _check(self, side: Kernel, oracle: Oracle, held: lock.DeviceLock | None,
               ) -> tuple[dict[str, Case], dict[str, Errors]]:
        """Run every class on every kind of input; returns a case and the worst errors by class."""
        worst: dict[str, Errors] = {}
        first: dict[str, Case] = {}
        todo = [(c, d) for c in self.target.classes for d in self.settings.distributions]
        where = "load"
        try:
            with self.runners.start(side, lock=held, yields=self.yields) as runner:
                for index, (config_class, distribution) in enumerate(todo):
                    where = f"class {config_class.name}"
                    self._progress("checking", where, index / len(todo))
                    case = oracle.make(config_class, distribution)
                    self._note_weak(case)
                    answer = runner.ask("call", case=case.id, tensors=case.tensors)
                    errors = oracle.judge(case, answer.get("outputs"))
                    first.setdefault(config_class.name, case)
                    worst[config_class.name] = _worse(worst.get(config_class.name), errors)
                    if first[config_class.name] is not case:
                        oracle.drop(case)
                    if not errors.within(self.target.tolerance_of(config_class)):
                        break
        except (PeerError, PeerDied) as error:
            raise Failed(f"{where}: {error.what}") from None
        return first, worst

    def _note_weak(self, case: Case) -> None:
        if case.weak and not any(f.rule == "weak-check" for f in self.findings):
            names = ", ".join(case.weak)
            self.findings.append(Finding(
                rule="weak-check", severity="flag",
                detail=f"class {case.config_class}: {names} would pass the check as well"))

    def _all_correct(self, errors: Mapping[str, Errors]) -> bool:
        return len(errors) == len(self.target.classes) and all(
            errors[c.name].within(self.target.tolerance_of(c)) for c in self.target.classes)

    def _ceilings(self, held: lock.DeviceLock | None) -> Ceilings | None:
        if not self.on_cpu:
            return roofline.of_gpu(self.device, self.target)
        scratch = kernel.scratch_inside(Path(self.settings.scratch), "ceilings")
        with self._lock():
            return roofline.measure_cpu(self.device.name, scratch)

    def _time(self, candidate: Kernel, incumbent: Kernel, oracle: Oracle, cases: dict[str, Case],
              held: lock.DeviceLock | None) -> dict[str, ClassTiming]:
        sides = {"candidate": candidate, "incumbent": incumbent}
        self._progress("waiting", "for the device", None)
        owned = held or self._lock()
        # judged once the lock is free: the oracle makes way for timing
        left: dict[str, object] = {}
        try:
            plan = self.settings.plan if self.on_cpu else msgspec.structs.replace(
                self.settings.plan, block_ns=GPU_BLOCK_NS)
            pairs = Pairs(plan, list(cases.values()),
                          lambda order: self.runners.start_all(
                              [sides[side] for side in order], lock=owned, refill=True),
                          on_pair=lambda n, of: self._progress("timing", f"pair {n} of ≤{of}",
                                                               n / of),
                          alone=self.on_cpu, cancel=self._cancel)
            timed = pairs.run(after=lambda peer, case: left.update({case.id: peer.ask(
                "after", case=case.id, tensors=case.tensors).get("outputs")}))
        except Tampered as error:
            self.findings.append(Finding(rule="clock", severity="reject", detail=error.what))
            raise Failed(f"tampered: {error.what}") from None
        except (PeerError, PeerDied) as error:
            raise Failed(f"failed while timed: {error.what}") from None
        finally:
            if held is None:
                owned.release()
        for name, launched in pairs.launches.items():
            if not self.on_cpu:
                self.evidence.append(Evidence(kind="launch", detail=f"{name}: {launched}"))
        for case in cases.values():
            self._recheck(case, left[case.id], oracle)
        return {timing.config_class: timing for timing in timed}

    def _recheck(self, case: Case, written: object, oracle: Oracle) -> None:
        """Judge what the timed calls left behind: it must be the right answer still."""
        if any(tensor["role"] == "inout" for tensor in case.tensors):
            return  # repeated calls on the same buffer have no expected value
        try:
            errors = oracle.judge(case, written)
        except PeerError as error:
            raise Failed(f"after timing: {error.what}") from None
        tolerance = self.target.tolerance_of(self.target.config_class(case.config_class))
        if not errors.within(tolerance):
            detail = f"class {case.config_class}: the timed calls left a wrong answer"
            self.findings.append(Finding(rule="after-timing", severity="reject", detail=detail))
            raise Failed(detail)

    def _verdict(self, errors: Mapping[str, Errors], timings: Mapping[str, ClassTiming],
                 ceilings: Ceilings | None, *, same: bool = False) -> Verdict:
        seen = Seen(target=self.target, plan=self.settings.plan, errors=errors, timings=timings,
                    ceilings=ceilings, on_cpu=self.on_cpu, same=same)
        rows, found = summary.rows(seen)
        verdict = Verdict(
            valid=True, correct=all(row.correct for row in rows), rows=rows,
            notes=tuple(self.notes), audit=(*self.findings, *found),
            evidence=tuple(self.evidence))
        return summary.with_overall(verdict, seen)


def _worse(a: Errors | None, b: Errors) -> Errors:
    if a is None:
        return b
    relative = None if a.relative is None or b.relative is None else max(a.relative, b.relative)
    return Errors(absolute=max(a.absolute, b.absolute), relative=relative, bad=a.bad + b.bad,
                  changed=tuple(dict.fromkeys(a.changed + b.changed)))
