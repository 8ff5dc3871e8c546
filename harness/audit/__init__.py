"""Static audit: what a candidate's sources show before any of it runs. The second line of defence.

Face: transfer.
"""

from __future__ import annotations

from pathlib import Path

from harness.audit.dependencies import new_dependencies
from harness.audit.static import static
from harness.audit.transfer import transfer
from harness.tasks.target import Target
from harness.verdict import Finding, Transfer


def audit(target: Target, candidate: Path, baseline: Path) -> tuple[list[Finding], Transfer]:
    """Return the findings on what a candidate's tree adds, and whether its gain carries over.

    A `reject` has no honest use; a `flag` is for a person to check.
    """
    findings = [*new_dependencies(target, candidate, baseline),
                *static(target, candidate, baseline)]
    weights = {arg.name for arg in target.args if arg.weight}
    carried = transfer(target, candidate, baseline, weights=weights or None)
    if (over_fit := carried.finding()) is not None:
        findings.append(over_fit)
    return findings, carried
