"""Static audit: what a candidate's sources show before any of it runs.

It is the second line of defence: the checks at run time are the first.

Face: static, transfer.
"""

from __future__ import annotations

from harness.audit.dependencies import new_dependencies
from harness.audit.static import AuditedChange
from harness.audit.transfer import transfer
from harness.verdict import Finding, Transfer


def audit(change: AuditedChange) -> tuple[list[Finding], Transfer]:
    """Return the findings on what a candidate's tree adds, and whether its gain carries over.

    A `reject` stands for code without an honest use; a `flag` is for a person to check.
    """
    findings = [*new_dependencies(change.target, change.changes), *change.findings()]
    weights = {arg.name for arg in change.target.args if arg.weight}
    carried = transfer(change, weights=weights or None)
    if (over_fit := carried.finding()) is not None:
        findings.append(over_fit)
    return findings, carried
