"""The over-fitting audit for a project with its own benchmark, where no arguments are declared.

The audit finds caches in C and Python sources, but not always which argument they cache. A patch
without a cache is inside the kernel. A cache of something named like a weight counts as one of
weights. Any other cache is left for a person to check.
"""

from __future__ import annotations

from pathlib import Path

from harness.audit.findings import sighting
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import C_SUFFIXES, PYTHON_SUFFIXES, Changes
from harness.audit.static import both, key_finding
from harness.audit.transfer import new_keys, transfer
from harness.target import Target
from harness.verdict import Finding, Transfer


def audit(op: str, candidate: Path, baseline: Path) -> tuple[list[Finding], Transfer | None]:
    """Return findings for a person, and whether the gain of the edited files carries over.

    The second is None if an edited file is not a source, cannot be read, or has an unknown cache.
    """
    changes = Changes(candidate, baseline)
    edited = dict.fromkeys((*changes.touched, *changes.replaced))
    if not edited or not all(path.endswith(PYTHON_SUFFIXES + C_SUFFIXES) for path in edited):
        return [], None
    source = next(iter(edited))
    target = Target(op=op, language="c" if source.endswith(C_SUFFIXES) else "python",
                    source=source, entry="", reference="", args=(), classes=())
    ours, theirs = both(target, changes)
    if _hidden(ours.sightings) - _hidden(theirs.sightings):
        return [], None
    carried = transfer(target, candidate, baseline)
    if carried.bucket in ("W2", "W3"):
        return sighting.findings([key_finding(key) for key in new_keys(ours, theirs)]), None
    finding = carried.finding()
    return [finding] if finding is not None else [], carried


def _hidden(seen: list[Sighting]) -> set[tuple[str, str]]:
    return {(sighting.file, sighting.what) for sighting in seen if sighting.rule == "hidden-code"}
