"""The timing half of a verdict: pairs of runners on one device, and what their calls leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.check import Check, Failed
from harness.kernel import Kernel
from harness.lock import DeviceLock
from harness.peer import PeerDied, PeerError
from harness.stage import Stage
from harness.timing import GPU_BLOCK_NS, ClassTiming, Pairs, Tampered
from harness.verdict import Evidence, Finding


class Measurement:
    """Times a candidate that has passed its check against the incumbent."""

    def __init__(self, stage: Stage, check: Check,
                 progress: Callable[[str, str, float | None], None]) -> None:
        self.stage, self.check = stage, check
        self._progress = progress
        self.findings: list[Finding] = []
        self.evidence: list[Evidence] = []

    def run(self, candidate: Kernel, incumbent: Kernel,
            held: DeviceLock | None) -> Mapping[str, ClassTiming]:
        """Return the timing of every class. Raises Failed when the candidate breaks or cheats."""
        stage, cases = self.stage, self.check.cases
        sides = {"candidate": candidate, "incumbent": incumbent}
        plan = stage.settings.plan if stage.on_cpu else replace(
            stage.settings.plan, block_ns=GPU_BLOCK_NS)
        self._progress("waiting", "for the device", None)
        # judged once the lock is free: the oracle makes way for timing
        left: dict[str, object] = {}
        with stage.measuring(held, lambda text: self._progress("waiting", text, None)) as owned:
            pairs = Pairs(plan, list(cases.values()),
                          lambda order: stage.runners.start_all(
                              [sides[side] for side in order], lock=owned, refill=True),
                          on_pair=lambda n, of: self._progress("timing", f"pair {n} of ≤{of}",
                                                               n / of),
                          alone=stage.on_cpu, cancel=stage.cancel)
            try:
                timed = pairs.run(after=lambda peer, case: left.update({case.id: peer.ask(
                    "after", case=case.id, tensors=case.tensors).get("outputs")}))
            except Tampered as error:
                self.findings.append(Finding(rule="clock", severity="reject", detail=error.what))
                raise Failed(f"tampered: {error.what}") from None
            except (PeerError, PeerDied) as error:
                raise Failed(f"failed while timed: {error.what}") from None
        if not stage.on_cpu:
            self.evidence += [Evidence(kind="launch", detail=f"{name}: {launched}")
                              for name, launched in pairs.launches.items()]
        for case in cases.values():
            self.check.recheck(case, left[case.id])
        return {timing.config_class: timing for timing in timed}
