"""The records that a kept commit has beside its code, in .kopt/<campaign>.

They are the campaign's records as they will be once the commit is kept. A commit cannot name
itself: its own row says PENDING. All times come from the journal, and phases after the verdict are
left out, so that a keep that is repeated after a kill makes the same commit.
"""

from __future__ import annotations

import msgspec

from engine.history.campaign_view import JournalView
from engine.history.waiting_line import ON_LINE
from engine.journal.records import Candidate, DecisionRow
from engine.records import optimize_log, performance
from engine.repository.clone import RECORDS

PENDING = "this commit"


def with_keep(view: JournalView, candidate: Candidate, *, reason: str,
              verdict: int | None) -> JournalView:
    """Return a campaign's view as if a candidate, and all that it rests on, were kept."""
    past = view.history
    row = past.verdicts.get(verdict or 0)
    line = {own.id: own.commit for own in past.candidates.values()
            if own.state in ON_LINE and own.commit}
    own = DecisionRow(
        id=0, campaign=candidate.campaign, candidate=candidate.id, verdict=verdict,
        round=candidate.round, kind="keep", reason=reason, actor="engine", commit=PENDING,
        at=row.at if row else candidate.created_at)
    decisions = [msgspec.structs.replace(decision, kind="keep")
                 if decision.commit and line.get(decision.candidate) == decision.commit
                 else decision for decision in past.decisions]
    candidates = {id: msgspec.structs.replace(other, state="keeping")
                  if id in line or id == candidate.id else other
                  for id, other in past.candidates.items()}
    return msgspec.structs.replace(
        view, phases=tuple(phase for phase in view.phases if phase[0] < own.at),
        history=msgspec.structs.replace(past, decisions=(*decisions, own), candidates=candidates))


def files(view: JournalView, candidate: Candidate, verdict: bytes) -> dict[str, bytes]:
    """Return the records by path; `view` is that of `with_keep`, `verdict` is its JSON."""
    folder = f"{RECORDS}/{view.campaign}"
    pages = {"performance.md": performance.page(view), "logs/optimize.md": optimize_log.page(view)}
    return {**{f"{folder}/{name}": text.encode(errors="replace") for name, text in pages.items()},
            f"{folder}/verdicts/{candidate.id}.json": verdict}
