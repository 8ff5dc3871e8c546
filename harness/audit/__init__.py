"""Static audit: what a candidate's sources show before any of it runs. The second line of defence.

Face: transfer.
"""

from __future__ import annotations

from pathlib import Path

from harness.audit.dependencies import new_dependencies
from harness.audit.findings.tree_diff import Changes
from harness.audit.static import both, static
from harness.audit.transfer import transfer_of
from harness.tasks.target import Target
from harness.verdict import Finding, Transfer


def audit(target: Target, candidate: Path, baseline: Path) -> tuple[list[Finding], Transfer]:
    """Return the findings on what a candidate's tree adds, and whether its gain carries over.

    A `reject` has no honest use; a `flag` is for a person to check.
    """
    changes = Changes(candidate, baseline)
    ours, theirs = both(target, changes)
    findings = [*new_dependencies(target, candidate, baseline),
                *static(target, changes, ours, theirs)]
    weights = {arg.name for arg in target.args if arg.weight}
    carried = transfer_of(target, ours, theirs, weights=weights or None)
    if (over_fit := carried.finding()) is not None:
        findings.append(over_fit)
    return findings, carried
