"""One engine's run over a campaign, from taking it over to giving it back.

recover → config classes → baseline → canary → rounds (plan → work → verify → judge → keep) → the
whole program → stop summary.
"""

from __future__ import annotations

from engine.context import CampaignStopped, EngineContext
from engine.journal.leased_connection import LeaseLost
from engine.run import acceptance, baseline, ending, recovery, round_loop
from engine.run.running_campaign import RunningCampaign
from engine.verify.fleet_device import NoDeviceAvailable
from harness.errors import KoptError, os_fault


def run_campaign(context: EngineContext, *, decide_only: bool) -> None:
    """Run a campaign until it stops and record how it ended; only apply approvals if `decide_only`.

    Raises KoptError for a fault that ends the campaign, LeaseLost if another engine has taken it.
    """
    campaign = RunningCampaign(context, decide_only=decide_only)
    try:
        campaign.records.start()
        recovery.recover(campaign)
        if decide_only:
            ending.decide(campaign)
            return
        campaign.set_state("running", "recovered" if campaign.before.round else "starting")
        baseline.prepare(campaign)
        if not campaign.unfinished_rounds():  # an unfinished round measures the headline at its end
            acceptance.measure_headline(campaign)
        ending.finish(campaign, baseline.untimed(context) or round_loop.run_rounds(campaign))
    except CampaignStopped:
        ending.cut_short(campaign, "stopped", campaign.controls.stop_reason or "stopped in order")
    except LeaseLost:
        raise  # another engine owns the campaign: this one must not write about it
    except NoDeviceAvailable as error:
        ending.cut_short(campaign, "stopped", str(error))
    except KoptError as error:
        ending.cut_short(campaign, "failed", str(error))
        raise
    except OSError as error:
        fault = os_fault(error)
        ending.cut_short(campaign, "failed", str(fault))
        raise fault from error
    except Exception as error:
        ending.cut_short(campaign, "failed",
                         f"internal error: {type(error).__name__}: {error}; "
                         f"see {campaign.setup.folder.logs / 'engine.log'}")
        raise
