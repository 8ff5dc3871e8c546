"""The rounds of a campaign: plan and run one after another until there is a reason to stop."""

from __future__ import annotations

from collections.abc import Sequence

from engine.history import history
from engine.lineage import rollback
from engine.planning import survey, tips
from engine.rounds.active_round import ActiveRound
from engine.rounds.pool import Pool
from engine.rounds.round import run_round
from engine.run import acceptance
from engine.run.running_campaign import RunningCampaign
from engine.task import Task


def run_rounds(campaign: RunningCampaign) -> str:
    """Run rounds until there is a reason to stop; return it.

    An unfinished round is ended first, without workers if the campaign ends anyway: candidates
    that its workers have captured are still judged.
    """
    while True:
        campaign.controls.look()
        _wait_while_paused(campaign)
        acceptance.apply_approvals(campaign)
        unfinished = campaign.unfinished_rounds()
        reason = _reason_to_stop(campaign)
        if reason and not unfinished:
            return reason
        n = min(unfinished) if unfinished else _next_number(campaign)
        campaign.set_state("running", f"round {n}: looking for bottlenecks")
        tasks, no_tasks = ([], "") if reason else campaign.planner.tasks(n)
        if not tasks and not unfinished:
            return f"nothing left to try: {no_tasks}"
        campaign.set_state("running", f"round {n}")
        _run_round(campaign, n, tasks, closing=bool(reason))


def _reason_to_stop(campaign: RunningCampaign) -> str:
    return rollback.failing(campaign.context) \
        or rollback.ended(campaign.context.reader, campaign.setup.id) \
        or campaign.planner.reason_to_stop()


def _next_number(campaign: RunningCampaign) -> int:
    rounds = campaign.context.reader.rounds(campaign.setup.id)
    return max((round.n for round in rounds), default=1) + 1


def _run_round(campaign: RunningCampaign, n: int, tasks: Sequence[Task], *,
               closing: bool) -> None:
    """Run one round, measure the headline, and record the round's result."""
    context, setup = campaign.context, campaign.setup
    limit = setup.manifest.pool.workers or survey.default_workers(setup)
    round = ActiveRound(
        context=context, keeper=campaign.keeper, records=campaign.records, meter=campaign.meter,
        pool=Pool(setup, campaign.workers, limit, context.messages, context.fleet),
        n=n, base=setup.repo.best, closing=closing)
    result = run_round(
        round, tasks, context.reader.candidates(setup.id, states=("captured", "verified")),
        apply_approvals=lambda: acceptance.apply_approvals(campaign),
        reason_to_end_workers=campaign.planner.workers_deadline())
    acceptance.measure_headline(campaign)
    rolled_back = [event.destination for event in history.rollbacks(context.reader, setup.id)
                   if event.round == n and not event.ends]
    campaign.meter.note()
    row = campaign.row()
    context.writer.end_round(
        setup.id, n, outcome=result.outcome, summary="; ".join([result.summary, *rolled_back]),
        best_speedup=1.0 if row.best_commit == row.base_commit else row.speedup)
    tips.learn(context)
    campaign.write_records()


def _wait_while_paused(campaign: RunningCampaign) -> None:
    """Wait until a paused campaign is resumed; approvals are still carried out."""
    if not campaign.controls.paused:
        return
    campaign.set_state("paused", "paused")
    campaign.meter.pause()
    while campaign.controls.paused:
        campaign.context.wait()
        acceptance.apply_approvals(campaign)
    campaign.meter.resume()
    campaign.set_state("running", "resumed")
