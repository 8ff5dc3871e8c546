"""One observation of an audit at one place, and how new ones become findings of a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.formats.text import plain
from harness.verdict import Finding, Severity

PLACES = 3
MAX_FINDINGS = 60
_ORDER: dict[Severity, int] = {"reject": 0, "flag": 1, "note": 2}


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One observation at a line (1-based; 0: the whole file). Equal observations share `what`."""

    rule: str
    severity: Severity
    what: str
    file: str
    line: int = 0
    text: str = ""

    @property
    def place(self) -> str:
        where = plain(self.file.replace("\n", " "), 120) + (f":{self.line}" if self.line else "")
        shown = plain(" ".join(self.text.split()), 80)
        return f"{where} ({shown})" if shown else where


def unread(file: str, what: str) -> Sighting:
    """Return the sighting of a source that cannot be audited."""
    return Sighting(rule="hidden-code", severity="flag", what=what, file=file)


def fresh(candidate: Iterable[Sighting], baseline: Iterable[Sighting]) -> list[Sighting]:
    """Return, for each kind, the candidate's sightings in excess of the baseline's number.

    Those on unchanged lines are subtracted first, so that those on changed lines are reported.
    """
    old = list(baseline)
    remaining = Counter((s.rule, s.what) for s in old)
    lines = {(s.rule, s.what, s.text) for s in old}
    new = []
    for sighting in sorted(candidate, key=lambda s: (s.rule, s.what, s.text) not in lines):
        key = (sighting.rule, sighting.what)
        if remaining[key] > 0:
            remaining[key] -= 1
        else:
            new.append(sighting)
    return new


def findings(sightings: Sequence[Sighting]) -> list[Finding]:
    """Group sightings into findings, one per kind, the MAX_FINDINGS worst, worst first."""
    groups: dict[tuple[str, Severity, str], list[Sighting]] = {}
    for sighting in sightings:
        groups.setdefault((sighting.rule, sighting.severity, sighting.what), []).append(sighting)
    ordered = sorted(groups, key=lambda key: (_ORDER[key[1]], key[0]))
    results = []
    for rule, severity, what in ordered[:MAX_FINDINGS]:
        seen = groups[rule, severity, what]
        places = list(dict.fromkeys(s.place for s in seen))
        more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
        text = f"{plain(what, 200)}: {', '.join(places[:PLACES])}{more}"
        results.append(Finding(rule=rule, severity=severity, detail=plain(text, 700)))
    return results
