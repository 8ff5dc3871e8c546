"""The acceptance: a best that does not pass it gives way to the newest kept commit that does. One
that is wrong ends the campaign; one that is less than what was accepted before it does not.

No commit is rewritten: the branch goes back along its own line. The journal says so first; what
follows from that is done again by the next engine, should this one be killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import history
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.lineage import headline
from engine.repository.campaign_repo import CampaignRepo
from harness.verdict import Verdict

OVER = "rollback.over"
"""The event that says that the branches are where a roll back wanted them, or why not."""
UNKNOWN = "the best was not accepted: it has no verdict against the baseline"
CUT = "cut_short"
"""Said of a stop that came before the campaign's own end."""


def failing(context: EngineContext) -> str:
    """Say that the best does not pass what the baseline has to, if that is so."""
    found = headline.recorded(context, context.setup.repo.best)
    if found is None or _right(found):
        return ""
    why = found.rejected_reason or "it is wrong in a class"
    return f"the best fails its final acceptance against the baseline: {why}"


def lower(context: EngineContext) -> str:
    """Say that the best is right and less than what was accepted before it, if that is so."""
    best = context.setup.repo.best
    found = headline.recorded(context, best)
    if found is None or not _right(found) or not (why := headline.fault(context, best, found)):
        return ""
    return f"the best is not accepted, measured twice: {why}"


def doubt(context: EngineContext) -> str:
    """Say why the best has not passed its final acceptance, if it has not."""
    repo = context.setup.repo
    unknown = repo.best != repo.base and headline.recorded(context, repo.best) is None
    return UNKNOWN if unknown else failing(context) or lower(context)


def ended(reader: Reader, campaign: str) -> str:
    """Return what a roll back has said that ends the campaign, as long as no stop has said it.

    A stop that was cut short has not, whatever its own reason.
    """
    told = reader.events_of(campaign, history.ROLLBACK)[-1:]
    stops = [stop for stop in reader.events_of(campaign, "campaign.stop")
             if not json.loads(stop.payload).get(CUT)][-1:]
    if not told or (stops and stops[0].seq > told[0].seq):
        return ""
    last = history.rollbacks(reader, campaign)[-1]
    return f"{last.reason}; {last.told}" if last.ends else ""


def roll_back(context: EngineContext, may_try: Callable[[], bool], *, ends: bool) -> str:
    """Go back to the newest kept commit that passes, if the best does not; returns what to say.

    What has no verdict gets one, as long as `may_try`; a commit without one is passed over. `ends`
    says that the campaign does, by that.
    """
    reason, repo = failing(context) or lower(context), context.setup.repo
    if not reason:
        return ""
    before, to, verdict = repo.best, repo.base, None
    failed = skipped = 0
    for commit in reversed(repo.log(before, repo.base)[:-1]):
        found = headline.recorded(context, commit)
        if found is None and may_try():
            found = headline.accept(context, commit)
        if found is not None and _right(found) and not headline.fault(context, commit, found):
            to, verdict = commit, found
            break
        failed, skipped = failed + (found is not None), skipped + (found is None)
    n = max((round.n for round in context.reader.rounds(context.setup.id)), default=0)
    told = f"rolled back to {to[:12]}, which passes it" if verdict is not None else \
        "rolled back to the baseline: no kept commit is known to pass it"
    told += f"; {failed} more failed it" if failed else ""
    told += f"; {skipped} could not be tried" if skipped else ""
    with context.writer.transaction():
        context.writer.set_campaign(
            context.setup.id, kind=history.ROLLBACK, best_commit=to,
            speedup=verdict.speedup if verdict else None,
            speedup_low=verdict.speedup_low if verdict else None,
            speedup_high=verdict.speedup_high if verdict else None,
            payload={"round": n, "ends": ends, "before": before, "commit": to, "reason": reason,
                     "told": told, "undone": repo.log(before, to)})
    failpoint("rollback.recorded")
    _finish(context.writer, repo, before, to)
    return f"{reason}; {told}"


def recover(writer: Writer, reader: Reader, repo: CampaignRepo) -> None:
    """Finish a roll back that an engine was killed over."""
    begun = reader.events_of(repo.campaign, history.ROLLBACK)[-1:]
    over = reader.events_of(repo.campaign, OVER)[-1:]
    if not begun or (over and over[0].seq > begun[0].seq):
        return  # what has become of the branch since is not its doing
    row, last = reader.campaign(repo.campaign), history.rollbacks(reader, repo.campaign)[-1]
    if row is not None and row.best_commit == last.commit:  # one of before it was said to be over
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


def _right(verdict: Verdict) -> bool:
    return verdict.valid and verdict.correct
