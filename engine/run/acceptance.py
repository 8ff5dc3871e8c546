"""The best commit's standing: approvals, its headline against the baseline, final acceptance."""

from __future__ import annotations

from engine.lineage import headline, rollback
from engine.run.running_campaign import RunningCampaign


def apply_approvals(campaign: RunningCampaign) -> None:
    """Carry out the approvals that have arrived, and measure the headline if one was kept."""
    if campaign.controls.decide(campaign.keeper):
        measure_headline(campaign)


def measure_headline(campaign: RunningCampaign) -> None:
    """Measure the best against the baseline again, and roll back if its headline has fallen.

    The headline is never a product of gains. A recorded one is not repeated; an engine that was
    killed may have left either step undone.
    """
    if headline.due(campaign.context):
        campaign.write_records()
        with campaign.phase("headline: the best against the baseline"):
            headline.measure(campaign.context)
    if rollback.reason_not_accepted(campaign.context):
        with campaign.phase("acceptance: back to the last accepted commit"):
            rollback.roll_back(campaign.context, campaign.planner.may_accept, ends=False)


def accept_best(campaign: RunningCampaign) -> str:
    """Roll back to the newest commit that passes final acceptance; return why, "" if the best does.
    """
    if not rollback.failing(campaign.context):
        return ""
    campaign.write_records()
    campaign.show_phase("final acceptance: back to a commit that passes")
    return rollback.roll_back(campaign.context, campaign.planner.may_accept,
                              ends=not campaign.decide_only)
