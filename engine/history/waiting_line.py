"""The waiting line: gains that wait for approval, and gains that were made on top of them.

Rounds continue from its last commit, the provisional best. The line starts at the campaign's best.
Changes of a candidate's state:

- verified → waiting: committed on the line; a person is asked
- verified → provisional: committed on the line, on top of a waiting gain; needs no approval itself
- waiting → keeping → kept: approved; the provisional gains on top of it, up to the next waiting
  one, are kept as well
- provisional → keeping → kept: the gain below it was approved
- waiting → closed: rejected
- waiting, provisional → verified: a gain below it was rejected; it is tried without that gain
- verified → verified: it cannot be added to the line as it is; it is deferred until the line is
  decided
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.journal.judged_rows import VerdictRow
from engine.journal.read import Reader
from engine.journal.records import Candidate, CandidateState
from harness.formats import quantities
from harness.formats.quantities import counted, listed

PROVISIONAL = "provisional"
"""Purpose of the provisional best's verdict against the baseline, which is never the headline."""
NAMED = 4
"""Most candidates that a text names."""
ON_LINE: tuple[CandidateState, ...] = ("waiting", "provisional")
Line = tuple[Candidate, ...]


def of(candidates: Iterable[Candidate], best: str) -> Line:
    """Return the line that begins on the commit `best`, from the bottom to the top."""
    on_base = {candidate.base_commit: candidate for candidate in candidates
               if candidate.state in ON_LINE and candidate.commit}
    line: list[Candidate] = []
    while candidate := on_base.pop(best, None):
        line.append(candidate)
        best = candidate.commit
    return tuple(line)


def read(reader: Reader, campaign: str) -> Line:
    """Return a campaign's line, read from its journal."""
    row = reader.campaign(campaign)
    return () if row is None else of(reader.candidates(campaign, states=ON_LINE), row.best_commit)


def above(line: Line, candidate: str) -> Line:
    """Return the part of the line above a candidate, () if it is not on the line."""
    ids = [member.id for member in line]
    return line[ids.index(candidate) + 1:] if candidate in ids else ()


def obstacle(line: Line, candidate: Candidate) -> str:
    """Return why a waiting candidate cannot be approved now and what to do, or "".

    A candidate without a commit has waited since an older kopt, which had no line; the next engine
    commits it.
    """
    for member in line:
        if member.id == candidate.id:
            return ""
        if member.state == "waiting":
            lower = member.id[:12]
            return f"it builds on {lower}, which waits as well: approve {lower} first"
    return "" if not candidate.commit else \
        "base moved: its base commit is no longer the best; it is tried on the best again " \
        "when the campaign runs"


def resting(line: Line, candidate: str) -> str:
    """Describe the gains that rest on a candidate and would be tried without it, or ""."""
    upper = above(line, candidate)
    if not upper:
        return ""
    ids = listed([f"{member.id[:12]}{', which waits' if member.state == 'waiting' else ''}"
                  for member in upper], NAMED)
    return f"{counted(len(upper), 'gain')} ({ids})"


def _alone_on_baseline(reader: Reader, campaign: str, line: Line) -> VerdictRow | None:
    """Return the verdict on a line's only member if its base is the baseline, else None."""
    row = reader.campaign(campaign)
    if row is None or len(line) > 1 or row.best_commit != row.base_commit:
        return None
    return reader.newest_verdict(campaign, line[0].id)


def provisional(reader: Reader, campaign: str) -> str:
    """Return the provisional best in words: `provisional 14.1x [13.9, 14.3], waiting for 1a2b`."""
    line = read(reader, campaign)
    if not line:
        return ""
    row = next((row for row in reader.verdicts(campaign, candidate=line[-1].commit[:12])
                if row.purpose == PROVISIONAL), None) or _alone_on_baseline(reader, campaign, line)
    measured = "not measured yet" if row is None else "invalid" if not row.valid else \
        "wrong" if not row.correct else quantities.speedup(row.speedup, row.low, row.high) or \
        "not timed"
    waits = listed([member.id[:12] for member in line if member.state == "waiting"], NAMED)
    return f"provisional {measured}, waiting for approval of {waits}"
