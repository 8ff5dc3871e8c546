"""The waiting line: gains that wait for approval, and gains that were made on top of them.

Rounds go on from its last commit, the provisional best. It starts at the campaign's best:

- verified → waiting: committed on the line; a person is asked
- verified → provisional: committed on the line; it rests on one that waits, and needs no approval
- waiting → keeping → kept: approved; all that rests on it up to the next that waits is kept as well
- provisional → keeping → kept: what it rests on was approved
- waiting → closed: rejected
- waiting, provisional → verified: what it rests on was rejected; it is tried without that
- verified stays verified: it does not go onto the line as it is, and is deferred until that is
  decided
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.journal.read import Reader
from engine.journal.records import Candidate, CandidateState

ON_LINE: tuple[CandidateState, ...] = ("waiting", "provisional")
Line = tuple[Candidate, ...]


def of(candidates: Iterable[Candidate], best: str) -> Line:
    """Return the line that rests on the commit `best`, each candidate before what rests on it."""
    on_base = {candidate.base_commit: candidate for candidate in candidates
               if candidate.state in ON_LINE and candidate.commit}
    line: list[Candidate] = []
    while candidate := on_base.pop(best, None):
        line.append(candidate)
        best = candidate.commit
    return tuple(line)


def read(reader: Reader, campaign: str) -> Line:
    """Return a campaign's line by its journal."""
    row = reader.campaign(campaign)
    return () if row is None else of(reader.candidates(campaign, states=ON_LINE), row.best_commit)


def above(line: Line, candidate: str) -> Line:
    """Return what rests on a candidate of the line."""
    ids = [member.id for member in line]
    return line[ids.index(candidate) + 1:] if candidate in ids else ()


def waits_below(line: Line, candidate: str) -> str:
    """Return the first candidate that must be approved before this one, "" if none."""
    return next((member.id for member in line[:len(line) - len(above(line, candidate)) - 1]
                 if member.state == "waiting"), "") if candidate in {m.id for m in line} else ""


def obstacle(line: Line, candidate: Candidate) -> str:
    """Return why a waiting candidate cannot be approved now and what to do, or ""."""
    if below := waits_below(line, candidate.id):
        return f"it rests on {below[:12]}, which waits as well: approve {below[:12]} first"
    if candidate.id not in {member.id for member in line}:
        return "its base has moved: it is tried on the best again when the campaign runs"
    return ""
