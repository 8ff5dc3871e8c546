"""The over-fitting audit of a project whose own benchmark measures it: nobody declares arguments.

What a patch to sources in C or Python remembers is seen all the same, only not always of what. A
patch that remembers nothing is inside the kernel; a cache of what is named like a weight is one of
weights; of any other nothing is said, and a person is to look.
"""

from __future__ import annotations

from pathlib import Path

from harness.audit.findings import sighting
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import C_SUFFIXES, PYTHON_SUFFIXES, Changes
from harness.audit.static import both, of_key
from harness.audit.transfer import new_keys, transfer
from harness.target import Target
from harness.verdict import Finding, Transfer


def audit(op: str, candidate: Path, baseline: Path) -> tuple[list[Finding], Transfer | None]:
    """Return what a person should look at, and whether the gain of what was edited carries over;
    None for what is no source, cannot be read, or has a cache of who knows what.
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
        return sighting.findings([of_key(key) for key in new_keys(ours, theirs)]), None
    found = carried.finding()
    return [found] if found is not None else [], carried


def _hidden(seen: list[Sighting]) -> set[tuple[str, str]]:
    return {(one.file, one.what) for one in seen if one.rule == "hidden-code"}
