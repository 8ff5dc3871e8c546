"""Time a candidate against the incumbent in pairs of runners, and judge the outputs they leave."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.case import Case
from harness.compile.kernel import Kernel
from harness.correctness import runtime_audit
from harness.correctness.check import CandidateFailed, CorrectnessCheck
from harness.devices.monitoring import interference
from harness.devices.monitoring.interference import InterferenceMonitor
from harness.errors import DeviceFault, IncumbentFault
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.session import Session
from harness.runners.slots.slot_ring import SlotRings
from harness.timing import outcome, stats
from harness.timing.paired_blocks import FIRST_SLOTS
from harness.timing.paired_timing import ClassTiming, PairedTiming
from harness.timing.plan import Plan
from harness.timing.timed_block import TamperedTiming
from harness.verdict import Evidence, Finding

NO_MEMORY = re.compile(r"out of memory|OutOfMemoryError", re.IGNORECASE)


class MemoryTaken(Exception):
    """A runner ran out of memory while several pairs were open at once."""


class IncumbentFailed(Exception):
    """The incumbent failed beside the candidate but runs without it; the text says how."""


class Measurement:
    """Times a candidate that has passed its correctness check."""

    def __init__(self, session: Session, check: CorrectnessCheck,
                 progress: Callable[[str, str, float | None], None]) -> None:
        self.session, self.check = session, check
        self._progress = progress
        self.findings: list[Finding] = []
        self.evidence: list[Evidence] = []
        self._one_pair = False

    def run(self, candidate: Kernel, incumbent: Kernel,
            held: DeviceLock | None) -> Mapping[str, ClassTiming]:
        """Return the timing of every class. Raises CandidateFailed for crashes and for cheating.

        A gain that is certain but below the margin is measured again in fresh processes: the same
        direction twice in a row is not noise. Where a class has lost, that is not needed.
        """
        session = self.session
        sides = {"candidate": candidate, "incumbent": incumbent}
        self._slots = SlotRings(
            self.check.oracle, limits=self.check.limits, on_gpu=not session.on_cpu,
            kinds=lambda name: self.check.kinds.get(name) or ["normal"],
            flush_bytes=session.fitted(session.settings.plan).cache_bytes)
        self._progress("starting", "the processes that are timed", None)
        session.runners.wait_profiles()
        session.runners.wait_contexts()
        with session.measuring(held, lambda text: self._progress("waiting", text, None)) as owned, \
                interference.monitored(session.device) as watching, self.check.oracle.running():
            cases = self.check.cases
            timings = self._measure(sides, owned, watching, list(cases.values()))
            plan = session.settings.plan
            values = {timing.config_class: stats.estimate(timing.log_ratios, plan.alpha_look)
                      for timing in timings}
            small = [cases[name] for name, value in values.items()
                     if outcome.is_small_gain(value, plan.margin)]
            if small and not any(outcome.is_lost(value, plan.tolerance)
                                 for value in values.values()):
                again = {timing.config_class: timing.log_ratios
                         for timing in self._measure(sides, owned, watching, small)}
                timings = [replace(timing, again=again.get(timing.config_class, ()))
                           for timing in timings]
        self.check.judge_slots(self._slots.judged, incumbent)  # unlocked: it may run kernels
        return {timing.config_class: timing for timing in timings}

    def _measure(self, sides: Mapping[str, Kernel], owned: DeviceLock,
                 watching: InterferenceMonitor | None, cases: Sequence[Case]) -> list[ClassTiming]:
        """Time pairs; once more if the incumbent fails but runs without the candidate.

        Where a runner finds no memory beside other pairs, pairs follow one another from then on:
        how much a kernel allocates for itself is not known beforehand.
        """
        failures: list[str] = []
        while True:
            try:
                timings = self._measure_once(sides, owned, watching, cases)
                break
            except MemoryTaken:
                self._one_pair = True
            except IncumbentFailed as error:
                failures.append(str(error))
                if len(failures) > 1:
                    raise CandidateFailed(
                        "failed while timed: beside it the incumbent failed twice: "
                        + " and ".join(dict.fromkeys(failures))) from None
        self.evidence += [Evidence(kind="repeated", detail=(
            f"while it was timed beside the candidate, the incumbent failed: {failure}; it runs "
            "without the candidate, and a second measurement, which counts, succeeded"))
            for failure in failures]
        return timings

    def _measure_once(self, sides: Mapping[str, Kernel], owned: DeviceLock,
                      watching: InterferenceMonitor | None,
                      cases: Sequence[Case]) -> list[ClassTiming]:
        session = self.session
        plan = session.fitted(session.settings.plan)
        at_once = 1 if self._one_pair else session.pairs_at_once(plan, cases)

        def start(order: Sequence[str]) -> Sequence[Peer]:
            return session.runners.start_all([sides[side] for side in order], lock=owned)

        pairs = PairedTiming(
            plan, cases, self._slots, start, at_once=at_once,
            quiet=any(side.tunes_itself for side in sides.values()),
            end=None if session.on_cpu else session.runners.end,
            on_pair=lambda n, of: self._progress("timing", f"pair {n} of ≤{of}", (n - 1) / of),
            alone=session.on_cpu and not session.in_process, freeze=not session.in_process,
            voids=watching.voids if watching is not None else None, cancel=session.cancel)
        try:
            timings = pairs.run(self._audit_runner)
        except TamperedTiming as error:
            self.findings.append(Finding(rule="clock", severity="reject", detail=error.what))
            raise CandidateFailed(f"tampered: {error.what}") from None
        except (PeerError, PeerDied) as error:
            if at_once > 1 and NO_MEMORY.search(error.what):
                raise MemoryTaken from None
            incumbent = sides["incumbent"]
            if error.peer == incumbent.name:
                self._require_incumbent_runs(incumbent, owned, plan, cases)
                raise IncumbentFailed(error.what) from None
            raise CandidateFailed(f"failed while timed: {error.what}") from None
        finally:  # another process on the card may also explain a failure
            self.evidence = [] if watching is None else list(watching.evidence(pairs.voided))
        if watching is not None and (why := watching.voids_all()):
            raise DeviceFault(f"every measurement was voided: {why}", where="the card",
                              fix="try again when the card is free")
        self._report(pairs, watching)
        return timings

    def _require_incumbent_runs(self, incumbent: Kernel, owned: DeviceLock, plan: Plan,
                                cases: Sequence[Case]) -> None:
        """Raise IncumbentFault if the incumbent fails without the candidate too."""
        runners = self.session.runners
        runners.end_waiting()
        try:
            with runners.start(incumbent, lock=owned) as runner:
                for case in cases:
                    slots = self._slots.open(case, FIRST_SLOTS)
                    slots.draw(FIRST_SLOTS)
                    slots.fill("incumbent")
                    slots.send(runner, "incumbent")
                    slots.receive(runner, "incumbent")
                    runner.ask("warm", case=case.id, warm_ns=plan.warm_ns)
                    slots.close()
        except (PeerError, PeerDied) as error:
            raise IncumbentFault(f"the incumbent fails alone: {error.what}",
                                 where=self.session.target.source,
                                 fix="start from a kernel that runs") from None

    def _audit_runner(self, peer: Peer) -> None:
        findings = runtime_audit.watch(peer)
        self.findings += runtime_audit.new_findings(
            findings, [*self.check.findings, *self.findings])
        if reason := runtime_audit.reject_reason(findings):
            raise CandidateFailed(reason)

    def _report(self, pairs: PairedTiming, watching: InterferenceMonitor | None) -> None:
        if pairs.suspicion:
            self.findings.append(Finding(rule="clock", severity="flag", detail=pairs.suspicion))
        if name := pairs.gain_within_band:
            band = pairs.bands[name]
            self.findings.append(Finding(rule="clock", severity="flag", detail=(
                f"class {name}: the gain is smaller than the {band:.1%} within which the "
                "clocks agree" if band < 1 else
                f"class {name}: the machine is too busy to check the gain by the harness's own "
                "clock")))
        for name, memory in self._slots.unlike.items():
            only_order = memory.startswith("strides")
            self.findings.append(Finding(
                rule="aliased-output", severity="flag" if only_order else "reject",
                detail=f"class {name}: it returns {memory}, and the incumbent does not: part "
                "of the work may be deferred until the result is read"))
            if not only_order:
                raise CandidateFailed(f"returned {memory}, unlike the incumbent")
        if damage := pairs.damage.get("candidate"):
            self.findings.append(Finding(rule="timed-answer", severity="reject", detail=damage))
            raise CandidateFailed(f"while timed, {damage}")
        evidence: list[Evidence] = []
        band = max(pairs.bands.values(), default=math.inf)
        evidence.append(Evidence(kind="clock", detail=(
            f"reported times agree with the harness's own clock within {band:.1%}" if band < 1
            else "too few pairs, or too busy a machine, to check times by the harness's own clock"
        )))
        evidence.append(Evidence(kind="cost", detail=f"{pairs.timed_ns / 1e9:.2f} s of timed calls "
                                                 f"in {pairs.count} process pairs"))
        evidence.append(Evidence(kind="judged", detail=(
            f"all {pairs.judged_calls} timed calls had different inputs and were compared "
            f"with the incumbent's; the reference judged {len(self._slots.judged)} of them")))
        evidence += [Evidence(kind="judged", detail=(
            f"class {name}: timed calls had {few} of its kinds of input: more do not fit in the "
            "card's memory")) for name, few in self._slots.fewer.items()]
        if not self.session.on_cpu:
            evidence += [Evidence(kind="launch", detail=f"{name}: {launched}")
                         for name, launched in pairs.launches.items()]
        if watching is not None:
            evidence += watching.evidence(pairs.voided)
        self.evidence = evidence
