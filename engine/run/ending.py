"""How a run ends: with the campaign, before it (cut short), or after applying late approvals."""

from __future__ import annotations

import logging

from engine.journal.records import CampaignState
from engine.lineage import promote, rollback
from engine.planning import tips
from engine.run import end_to_end
from engine.run.running_campaign import RunningCampaign
from harness.errors import EnvironmentFault

log = logging.getLogger("kopt.engine")


def finish(campaign: RunningCampaign, reason: str) -> None:
    """End a campaign that has a reason to stop: accept the best, run the whole program, report."""
    campaign.controls.look()
    campaign.apply_approvals()
    accepted = _accept_best(campaign)
    tips.learn(campaign.context)
    promote.ask_next(campaign.keeper)
    _run_end_to_end(campaign)
    if accepted:
        reason = accepted if accepted.startswith(reason) else f"{reason}; {accepted}"
    _record_stop(campaign, "waiting" if campaign.waiting_count() else "finished", reason)


def _accept_best(campaign: RunningCampaign) -> str:
    """Roll back to the newest commit that passes final acceptance; return why, "" if the best does.
    """
    if not rollback.failing(campaign.context):
        return ""
    campaign.write_records()
    campaign.show_phase("final acceptance: back to a commit that passes")
    return rollback.roll_back(campaign.context, campaign.planner.may_accept,
                              ends=not campaign.decide_only)


def cut_short(campaign: RunningCampaign, state: CampaignState, reason: str) -> None:
    """Record an end that is not the campaign's own; after a `decide_only` run it stays as it was.
    """
    if campaign.decide_only:
        _restore_state(campaign, campaign.before.state)
        return
    try:
        _record_stop(campaign, state, reason, cut=True)
    except (OSError, EnvironmentFault) as error:
        log.warning("no stop summary: %s", error)
        campaign.set_state(state, "", reason)


def decide(campaign: RunningCampaign) -> None:
    """Apply approvals to a campaign that no engine runs; it ends in the state it had."""
    context, before = campaign.context, campaign.before
    context.round = before.round
    campaign.controls.look()
    campaign.apply_approvals()
    campaign.measure_headline()  # an earlier engine may have kept without measuring it
    _accept_best(campaign)
    tips.learn(context)
    state, is_over = before.state, before.state in ("waiting", "finished")
    if is_over:
        promote.ask_next(campaign.keeper)
        _run_end_to_end(campaign)
        state = "waiting" if campaign.waiting_count() else "finished"
    if (is_over or state in ("stopped", "failed")) and \
            not end_to_end.stopped(context, campaign.waiting_count()):
        _record_stop(campaign, state, before.reason, cut=not is_over)
        return
    _restore_state(campaign, state)
    campaign.write_records()


def _restore_state(campaign: RunningCampaign, state: CampaignState) -> None:
    before = campaign.before
    campaign.set_state(state, before.phase, before.reason, rollback.doubt(campaign.context))


def _record_stop(campaign: RunningCampaign, state: CampaignState, reason: str, *,
                 cut: bool = False) -> None:
    """Record the stop with what was spent, and write the Stop Summary.

    A stop that was `cut` short does not state the campaign's own result.
    """
    doubt, setup = rollback.doubt(campaign.context), campaign.setup
    campaign.meter.note()
    spent = campaign.meter.spent
    with campaign.context.writer.transaction():
        campaign.context.writer.event(
            setup.id, "campaign.stop", setup.repo.best, reason=reason, doubt=doubt,
            wall_s=spent.wall_s, trials=spent.trials, cost=spent.cost,
            waiting=campaign.waiting_count(),
            **({rollback.CUT: True} if cut else {}))
        campaign.set_state(state, "", reason, doubt)
    campaign.write_records()


def _run_end_to_end(campaign: RunningCampaign) -> None:
    """Run the whole program within the wall time that is left.

    A `decide_only` run comes after the campaign's end: its time is not limited by the budget.
    """
    if not end_to_end.due(campaign.context):
        return
    campaign.show_phase("end to end: the whole program with the best and without it")
    wall_s = None if campaign.decide_only else campaign.setup.manifest.budget.wall_s
    left_s = None if wall_s is None else max(0.0, wall_s - campaign.meter.spent.wall_s)
    end_to_end.end_to_end(campaign.context, left_s=left_s)
