"""Rolls back to the newest kept commit that passes final acceptance, if the best does not.

Without such a commit it rolls back to the baseline. A rollback from an incorrect best ends the
campaign; one from a best whose headline fell does not.

No commit is rewritten: the branch moves back along its own line. The journal records the rollback
first; the next engine finishes it if this one is killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import kept_commits
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.lineage import headline
from engine.repository.campaign_repo import CampaignRepo
from harness.verdict import Verdict

OVER = "rollback.over"
"""The kind of the event at a rollback's end: the branches were moved, or a move was refused."""
UNKNOWN = "the best was not accepted: it has no verdict against the baseline"
CUT = "cut_short"
"""Payload key of a `campaign.stop` event; true if the campaign was interrupted before its end."""


def failing(context: EngineContext) -> str:
    """Return why the best's verdict against the baseline is invalid or incorrect, or ""."""
    verdict = headline.recorded(context, context.setup.repo.best)
    if verdict is None or _is_correct(verdict):
        return ""
    why = verdict.rejected_reason or "a config class has wrong results"
    return f"the best fails its final acceptance against the baseline: {why}"


def reason_not_accepted(context: EngineContext) -> str:
    """Return why a correct best is not accepted by its verdict against the baseline, or ""."""
    best = context.setup.repo.best
    verdict = headline.recorded(context, best)
    if verdict is None or not _is_correct(verdict) or \
            not (why := headline.fault(context, best, verdict)):
        return ""
    return f"the best is not accepted, measured twice: {why}"


def doubt(context: EngineContext) -> str:
    """Return why the best has not passed final acceptance, or ""."""
    repo = context.setup.repo
    unknown = repo.best != repo.base and headline.recorded(context, repo.best) is None
    return UNKNOWN if unknown else failing(context) or reason_not_accepted(context)


def ended(reader: Reader, campaign: str) -> str:
    """Return why the newest rollback ends the campaign, or "".

    It no longer does once the campaign has stopped after it without being cut short.
    """
    rollbacks = reader.events_of(campaign, kept_commits.ROLLBACK)[-1:]
    stops = [stop for stop in reader.events_of(campaign, "campaign.stop")
             if not json.loads(stop.payload).get(CUT)][-1:]
    if not rollbacks or (stops and stops[0].seq > rollbacks[0].seq):
        return ""
    last = kept_commits.rollbacks(reader, campaign)[-1]
    return f"{last.reason}; {last.destination}" if last.ends else ""


def roll_back(context: EngineContext, may_try: Callable[[], bool], *, ends: bool) -> str:
    """Go back to the newest kept commit that passes, if the best does not; return a summary or "".

    Commits without a verdict are measured while `may_try()` is true, else skipped. `ends` records
    that the rollback ends the campaign.
    """
    reason, repo = failing(context) or reason_not_accepted(context), context.setup.repo
    if not reason:
        return ""
    to, verdict = repo.base, None
    failed = skipped = 0
    for commit in reversed(repo.log(repo.best, repo.base)[:-1]):
        trial = headline.recorded(context, commit)
        if trial is None and may_try():
            trial = headline.record(context, commit)
        if trial is not None and _is_correct(trial) and not headline.fault(context, commit, trial):
            to, verdict = commit, trial
            break
        failed, skipped = failed + (trial is not None), skipped + (trial is None)
    summary = f"rolled back to {to[:12]}, which passes it" if verdict is not None else \
        "rolled back to the baseline: no kept commit is known to pass it"
    summary += f"; {failed} more failed it" if failed else ""
    summary += f"; {skipped} could not be tried" if skipped else ""
    return _move(context, to, verdict, reason, summary, ends=ends)


def step_back(context: EngineContext, reason: str, *, ends: bool) -> str:
    """Go back to the commit before the best, for a reason; return the reason and a summary."""
    repo = context.setup.repo
    line = repo.log(repo.best, repo.base)
    to = line[-2] if len(line) > 1 else repo.base
    verdict = None if to == repo.base else headline.recorded(context, to)
    where = "the baseline" if to == repo.base else f"{to[:12]}, which was kept before it"
    return _move(context, to, verdict, reason, f"rolled back to {where}", ends=ends)


def _move(context: EngineContext, to: str, verdict: Verdict | None, reason: str, summary: str, *,
          ends: bool) -> str:
    """Record a rollback to a commit with its verdict against the baseline, and move the branch."""
    repo = context.setup.repo
    before = repo.best
    n = max((round.n for round in context.reader.rounds(context.setup.id)), default=0)
    with context.writer.transaction():
        context.writer.set_campaign(
            context.setup.id, kind=kept_commits.ROLLBACK, best_commit=to,
            speedup=verdict.speedup if verdict else None,
            speedup_low=verdict.speedup_low if verdict else None,
            speedup_high=verdict.speedup_high if verdict else None,
            payload={"round": n, "ends": ends, "before": before, "commit": to, "reason": reason,
                     "told": summary, "undone": repo.log(before, to)})
    failpoint("rollback.recorded")
    _finish(context.writer, repo, before, to)
    return f"{reason}; {summary}"


def recover(writer: Writer, reader: Reader, repo: CampaignRepo) -> None:
    """Finish a rollback that a killed engine began."""
    begun = reader.events_of(repo.campaign, kept_commits.ROLLBACK)[-1:]
    over = reader.events_of(repo.campaign, OVER)[-1:]
    if not begun or (over and over[0].seq > begun[0].seq):
        return  # it was finished, and the branch may have moved since
    row, last = reader.campaign(repo.campaign), kept_commits.rollbacks(reader, repo.campaign)[-1]
    if row is not None and row.best_commit == last.commit:  # older journals lack OVER
        _finish(writer, repo, last.before, last.commit)


def _finish(writer: Writer, repo: CampaignRepo, before: str, to: str) -> None:
    writer.check_lease(repo.campaign)
    repo.restore(to)
    failpoint("rollback.restored")
    refusal = repo.take_back(before)
    failpoint("rollback.taken-back")
    with writer.transaction():
        if refusal:
            writer.event(repo.campaign, "warning", before, message=refusal)
        writer.event(repo.campaign, OVER, to)
    failpoint("rollback.over")
    repo.note_best()


def _is_correct(verdict: Verdict) -> bool:
    return verdict.valid and verdict.correct
