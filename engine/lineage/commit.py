"""Keeps a candidate in two phases, so that a killed engine neither loses nor repeats the commit.

commit (depends only on its inputs) → journal: decision and `keeping` → branch by compare-and-swap
→ push → journal: `kept` and the campaign's best commit. `recover` finishes an interrupted keep, or
gives it up.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.failpoint import failpoint
from engine.journal.records import Campaign, Candidate
from engine.journal.write import Writer
from engine.repository.campaign_repo import CampaignRepo
from harness.errors import Refused

FAILPOINTS = (
    "keep.start", "keep.committed", "keep.keeping-open", "keep.keeping", "keep.branch-before",
    "keep.branch", "keep.push-before", "keep.push", "keep.kept-open", "keep.kept",
)
"""The steps at which KOPT_FAILPOINT can end the process, in order."""

TOLERANCE = 0.01
"""Largest relative drop of a kept commit's headline below the previous headline."""


class KeepReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a candidate is kept, for the journal and the commit."""

    message: str
    """The commit's message: one line, and below it why the kernel is faster."""
    reason: str
    actor: str
    round: int
    verdict: int | None = None
    doubts: str = ""
    """Why a person is asked first, "" if nobody is."""
    records: Mapping[str, bytes] = {}
    """Files that the commit contains besides the code, by path."""


class KeptCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A kept candidate's commit; `refusal` is why the user's repository refused the push, or ""."""

    candidate: str
    commit: str
    refusal: str = ""


def commit_candidate(writer: Writer, repo: CampaignRepo, candidate: Candidate, tree: str,
                     why: KeepReason) -> KeptCommit:
    """Make a candidate the campaign's best commit.

    Raises Refused if its base is no longer the best (rebase it and measure again), InputError if
    its tree is its base's, LeaseLost if another engine owns the campaign.
    """
    failpoint("keep.start")
    if candidate.base_commit != repo.best:
        raise Refused(f"the base of candidate {candidate.id} has moved",
                      where=candidate.campaign, fix="rebase it and measure it again")
    commit = repo.commit(candidate.base_commit, tree, why.message, why.records)
    failpoint("keep.committed")
    return keep_commit(writer, repo, msgspec.structs.replace(candidate, commit=commit), why)


def keep_commit(writer: Writer, repo: CampaignRepo, candidate: Candidate,
                why: KeepReason) -> KeptCommit:
    """Record the keep of a candidate whose commit exists, and move the branch to it."""
    with writer.transaction():
        writer.add_decision(candidate.campaign, candidate.id, "keep", why.reason, round=why.round,
                            actor=why.actor, verdict=why.verdict, commit=candidate.commit,
                            state="keeping", base=candidate.base_commit)
        failpoint("keep.keeping-open")
    failpoint("keep.keeping")
    return _finish(writer, repo, candidate)


def recover(writer: Writer, repo: CampaignRepo) -> list[KeptCommit]:
    """Finish or give up interrupted keeps; return the finished ones.

    Call it after taking the lease and after `CampaignRepo.unlock`.
    """
    kept: list[KeptCommit] = []
    for candidate in writer.all(Candidate, "WHERE campaign = ? AND state = 'keeping' "
                                "ORDER BY rowid", repo.campaign):
        try:
            kept.append(_finish(writer, repo, candidate))
        except Refused as refusal:
            writer.event(repo.campaign, "warning", candidate.id, message=str(refusal))
    _align_branch(writer, repo)
    repo.note_best()
    return kept


def describe_drop(before: float | None, now: float | None) -> str:
    """Describe a drop of the speedup against the baseline beyond TOLERANCE, or ""."""
    if before is None or now is None or now >= before * (1 - TOLERANCE):
        return ""
    return (f"the best measures {now:.3f}x against the baseline, {100 * (1 - now / before):.1f} % "
            f"less than the {before:.3f}x before it: accepted scores may not fall by more than "
            f"{100 * TOLERANCE:g} %")


def _finish(writer: Writer, repo: CampaignRepo, candidate: Candidate) -> KeptCommit:
    """Do every step after `keeping` is recorded; all of them may be repeated."""
    writer.check_lease(candidate.campaign)
    failpoint("keep.branch-before")
    exists = bool(repo.git.find(f"{candidate.commit}^{{commit}}"))
    if not exists or not repo.advance(candidate.base_commit, candidate.commit):
        _give_up(writer, candidate,
                 "another program moved its branch" if exists else "its commit no longer exists")
    failpoint("keep.branch")
    failpoint("keep.push-before")
    refusal = repo.publish()
    failpoint("keep.push")
    with writer.transaction():
        writer.set_candidate_state(candidate.campaign, candidate.id, "kept",
                                   commit=candidate.commit)
        writer.set_campaign(candidate.campaign, kind="campaign.best", best_commit=candidate.commit,
                            speedup=None, speedup_low=None, speedup_high=None,  # of another commit
                            payload={"candidate": candidate.id, "commit": candidate.commit,
                                     "before": candidate.base_commit})
        if refusal:
            writer.event(candidate.campaign, "warning", candidate.id, message=refusal)
        failpoint("keep.kept-open")
    failpoint("keep.kept")
    repo.note_best()
    return KeptCommit(candidate=candidate.id, commit=candidate.commit, refusal=refusal)


def _give_up(writer: Writer, candidate: Candidate, why: str) -> None:
    """Close a candidate that can no longer be kept; raises Refused."""
    reason = f"could not be kept: {why}"
    writer.add_decision(candidate.campaign, candidate.id, "reject", reason, state="closed",
                        round=candidate.round, actor="engine", is_fault=True)
    raise Refused(reason, where=f"candidate {candidate.id}")


def _align_branch(writer: Writer, repo: CampaignRepo) -> None:
    """Set the branch to the journal's best commit, if they differ."""
    campaign = writer.one(Campaign, "WHERE id = ?", repo.campaign)
    if campaign is None or campaign.best_commit == repo.git.find(repo.ref):
        return
    repo.restore(campaign.best_commit)
    writer.event(repo.campaign, "warning", message=(
        f"branch {repo.branch} was moved by another program and is set back to "
        f"{campaign.best_commit[:12]}"))
