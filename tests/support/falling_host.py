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
"""Of what is measured of them against the baseline."""


def falling(times: int = 1000, *, sure: bool = True) -> Callable[[EngineContext, VerdictRequest],
            Verdict]:
    """Return what makes verdicts in the place of `EngineContext.verdict`; they fall so many times,
    if not for `sure` within an interval that reaches as far up as ever.
    """
    make, seen = EngineContext.verdict, list[VerdictRequest]()

    def verdict(self: EngineContext, job: VerdictRequest) -> Verdict:
        found = make(self, job)
        text = self.setup.repo.read(job.candidate_tree, "kernel.py").decode()
        if job.purpose != "headline" or CANDIDATE not in text or len(seen) >= times:
            return found
        seen.append(job)
        low, middle, high = (FACTOR * (one or 1.0) for one in (
            found.speedup_low, found.speedup, found.speedup_high))
        return replace(found, speedup_low=low, speedup=middle,
                       speedup_high=high if sure else found.speedup_high)

    return verdict


if __name__ == "__main__":
    EngineContext.verdict = falling()  # type: ignore[method-assign, assignment]
    sys.exit(host.main())
