"""A campaign host on a machine where one candidate becomes slower after it is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from engine.context import EngineContext
from engine.run import host
from engine.verify.verifier import VerdictRequest
from harness.verdict import Verdict

CANDIDATE = "D = 50.0"
FACTOR = 0.6
"""The candidate's measured speedup over the baseline is multiplied by this factor."""


def falling(times: int = 1000, *, sure: bool = True) -> Callable[[EngineContext, VerdictRequest],
            Verdict]:
    """Return an `EngineContext.verdict` that lowers the candidate's first `times` headlines.

    If not `sure`, the interval keeps its upper end, so that the loss is not significant.
    """
    judge, lowered = EngineContext.verdict, list[VerdictRequest]()

    def verdict(self: EngineContext, job: VerdictRequest) -> Verdict:
        measured = judge(self, job)
        text = self.setup.repo.read(job.candidate_tree, "kernel.py").decode()
        if job.purpose != "headline" or CANDIDATE not in text or len(lowered) >= times:
            return measured
        lowered.append(job)
        low, middle, high = (FACTOR * (speedup or 1.0) for speedup in (
            measured.speedup_low, measured.speedup, measured.speedup_high))
        return replace(measured, speedup_low=low, speedup=middle,
                       speedup_high=high if sure else measured.speedup_high)

    return verdict


if __name__ == "__main__":
    EngineContext.verdict = falling()  # type: ignore[method-assign, assignment]
    sys.exit(host.main())
