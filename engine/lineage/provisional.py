"""Commits gains to the waiting line, and keeps, rejects or releases the gains on it.

See `engine.history.waiting_line` for the states. The journal is written first and the line's branch
follows it, so that the next engine finishes what a killed one began.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from engine.failpoint import failpoint
from engine.history import waiting_line
from engine.history.waiting_line import ON_LINE
from engine.journal.judged_rows import DecisionRow
from engine.journal.read import Reader
from engine.journal.records import Candidate
from engine.journal.write import Writer
from engine.lineage.commit import KeepReason, KeptCommit, keep_commit
from engine.repository.campaign_repo import CampaignRepo
from harness.errors import Refused

FAILPOINTS = ("line.committed", "line.recorded", "line.branch", "line.approved", "line.settled",
              "line.dropped")
"""The steps at which KOPT_FAILPOINT can end the process."""


def add(writer: Writer, repo: CampaignRepo, candidate: Candidate, tree: str, why: KeepReason, *,
        asks: bool) -> None:
    """Make a gain the provisional best; with `asks` it waits for a person's approval.

    Raises Refused if its base is no longer the provisional best, InputError if its tree equals its
    base's, LeaseLost if another engine owns the campaign.
    """
    if candidate.base_commit != repo.tip:
        raise Refused(f"the base of candidate {candidate.id} has moved", where=candidate.campaign)
    commit = repo.commit(candidate.base_commit, tree, why.message, why.records)
    failpoint("line.committed")
    writer.add_decision(candidate.campaign, candidate.id, "ask" if asks else "provisional",
                        why.reason, round=why.round, actor=why.actor, verdict=why.verdict,
                        commit=commit, doubts=why.doubts,
                        state="waiting" if asks else "provisional",
                        base=candidate.base_commit)
    failpoint("line.recorded")
    repo.set_tip(commit)
    failpoint("line.branch")


def approve(writer: Writer, reader: Reader, repo: CampaignRepo, candidate: Candidate,
            actor: str) -> list[KeptCommit]:
    """Keep the waiting candidate at the line's bottom and the provisional gains directly above.

    Raises Refused if another program moved the campaign's branch.
    """
    placing = _placing_decision(reader, candidate)
    kept = keep_commit(writer, repo, candidate, KeepReason(
        message="", reason=placing.measured, actor=actor, round=candidate.round,
        verdict=placing.verdict))
    failpoint("line.approved")
    return [kept, *settle(writer, reader, repo)]


def settle(writer: Writer, reader: Reader, repo: CampaignRepo) -> list[KeptCommit]:
    """Keep the provisional gains at the bottom of the line; move the line's branch to its end."""
    kept: list[KeptCommit] = []
    while (line := waiting_line.read(reader, repo.campaign)) and line[0].state == "provisional":
        placing = _placing_decision(reader, line[0])
        kept.append(keep_commit(writer, repo, line[0], KeepReason(
            message="", reason=placing.reason, actor="engine", round=line[0].round,
            verdict=placing.verdict)))
        failpoint("line.settled")
    repo.set_tip(line[-1].commit if line else repo.best)
    return kept


def reject(writer: Writer, reader: Reader, repo: CampaignRepo, candidate: Candidate, *,
           reason: str, actor: str) -> list[Candidate]:
    """Close a waiting candidate; return the gains above it, which are to be tried without it.

    `reason` reads `rejected by ann@box: it changes the rounding`.
    """
    line = waiting_line.read(reader, repo.campaign)
    with writer.transaction():
        writer.add_decision(repo.campaign, candidate.id, "reject", reason, round=candidate.round,
                            actor=actor, is_rejection=True, state="closed")
        dropped = waiting_line.above(line, candidate.id)
        _release(writer, reader, dropped, f"built on {candidate.id[:12]}, which was {reason}")
    failpoint("line.dropped")
    settle(writer, reader, repo)
    return list(dropped)


def release(writer: Writer, reader: Reader, repo: CampaignRepo, reason: str) -> list[Candidate]:
    """Release all gains of the line: they become `verified` again, to be tried on the best."""
    line = waiting_line.read(reader, repo.campaign)
    with writer.transaction():
        _release(writer, reader, line, reason)
    settle(writer, reader, repo)
    return list(line)


def recover(writer: Writer, reader: Reader, repo: CampaignRepo) -> list[Candidate]:
    """Finish what a killed engine left; release gains that are no longer on the line.

    A gain is also released if its commit, or one below it, is missing from the repository. Returns
    the released gains that never had a commit: they have waited since an older kopt.
    """
    line = waiting_line.read(reader, repo.campaign)
    intact = {member.id for member in takewhile(
        lambda member: repo.git.find(f"{member.commit}^{{commit}}"), line)}
    stray = [candidate for candidate in reader.candidates(repo.campaign, states=ON_LINE)
             if candidate.id not in intact]
    with writer.transaction():
        for candidate in stray:
            _release(writer, reader, (candidate,),
                     "its base commit is no longer the best" if candidate.commit
                     else "it joins the waiting line, which an older kopt did not have")
    settle(writer, reader, repo)
    return [candidate for candidate in stray if not candidate.commit]


def _release(writer: Writer, reader: Reader, candidates: Iterable[Candidate], reason: str) -> None:
    for candidate in candidates:
        writer.add_decision(candidate.campaign, candidate.id, "runner-up", reason,
                            round=candidate.round, actor="engine", state="verified",
                            verdict=_placing_decision(reader, candidate).verdict)


def _placing_decision(reader: Reader, candidate: Candidate) -> DecisionRow:
    """Return the decision that put a candidate on the line."""
    return next(row for row in reader.decisions(candidate.campaign, candidate=candidate.id)
                if row.kind in ("ask", "provisional"))
