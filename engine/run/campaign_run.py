"""One engine's run over a campaign, from taking it over to giving it back.

recover → config classes → baseline → canary → rounds (plan → work → verify → judge → keep) → the
whole program → stop summary.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.campaign import artifacts
from engine.campaign.setup import last_round
from engine.context import CampaignStopped, EngineContext
from engine.history import kept_commits
from engine.journal.lease import LeaseLost
from engine.journal.records import in_phase
from engine.lineage import commit, provisional, rollback
from engine.planning import outages, pool_size, tips
from engine.planning.advice import patch_reviewer
from engine.planning.planner import submitted
from engine.rounds.active_round import ActiveRound
from engine.rounds.pool import Pool
from engine.rounds.round import run_round
from engine.run import baseline, ending
from engine.run.controls import NOTHING_LEFT
from engine.run.running_campaign import RunningCampaign
from engine.task import Task
from engine.verify.fleet_device import NoDeviceAvailable
from harness.errors import KoptError, os_fault


def run_campaign(context: EngineContext, *, decide_only: bool) -> None:
    """Run a campaign until it stops, and record how it ended.

    With `decide_only`, only judge submitted patches and carry out people's requests.
    Raises KoptError for a fault that ends the campaign, LeaseLost if another engine has taken it.
    """
    campaign = RunningCampaign(context, decide_only=decide_only)
    try:
        campaign.records.start()
        _recover(campaign)
        if decide_only:
            _judge_submitted(campaign)
            ending.decide(campaign)
            return
        campaign.set_state("running", in_phase(
            "PREPARE_ENVIRONMENT", "resuming" if campaign.before.round else ""))
        baseline.prepare(campaign)
        if not campaign.unfinished_rounds():  # an unfinished round measures the headline at its end
            campaign.measure_headline()
        ending.finish(campaign, baseline.untimed(context) or _run_rounds(campaign))
    except CampaignStopped:
        ending.cut_short(campaign, "stopped", campaign.controls.stop_reason or "stopped by request")
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


def _recover(campaign: RunningCampaign) -> None:
    """Finish what a killed engine left half done, and remove its worktrees."""
    context, repo = campaign.context, campaign.setup.repo
    repo.unlock()  # first of all: a killed git process may have left locks
    rollback.recover(context.writer, context.reader, repo)
    commit.recover(context.writer, repo)
    campaign.adopt(provisional.recover(context.writer, context.reader, repo))
    campaign.end_slots()
    repo.remove_all()
    campaign.setup.folder.remove_unfinished_trees()
    artifacts.remove_unrecorded(context.reader, campaign.setup.folder, campaign.setup.id)
    campaign.write_records()


def _run_rounds(campaign: RunningCampaign) -> str:
    """Run rounds until there is a reason to stop; return it.

    An unfinished round is ended first, without workers if the campaign ends anyway: candidates
    that its workers have captured are still judged.
    """
    while True:
        campaign.controls.look()
        _wait_while_paused(campaign)
        campaign.apply_approvals()
        unfinished = campaign.unfinished_rounds()
        if campaign.row().round > 1 and not unfinished:
            baseline.measure_references(campaign)
        reason = rollback.failing(campaign.context) or rollback.ended(
            campaign.context.reader, campaign.setup.id) or campaign.planner.stop().reason
        if reason and not unfinished:
            return reason
        n = min(unfinished) if unfinished else _next_number(campaign)
        campaign.set_state("running", in_phase("ANALYZE", f"round {n}"))
        tasks, no_tasks = ([], "") if reason else campaign.planner.tasks(n)
        if not tasks and not unfinished and campaign.planner.left_out:
            if too_long := _wait_for_providers(campaign):
                return too_long
            continue
        if not tasks and not unfinished:
            baseline.measure_references(campaign)
            campaign.nothing_left_on = campaign.setup.repo.tip
            return f"{NOTHING_LEFT}: {no_tasks}"
        campaign.controls.answer_reopening("")
        _run_round(campaign, n, tasks, closing=bool(reason))


def _judge_submitted(campaign: RunningCampaign) -> None:
    """Judge the patches that were handed in while no engine ran, whatever the budget."""
    over = campaign.before.state in ("waiting", "finished")
    judged: set[str] = set()
    while baseline.recorded(campaign.context) is not None:
        unfinished = campaign.unfinished_rounds()
        if unfinished and not over:
            return  # the engine that continues the round judges them
        n = min(unfinished) if unfinished else _next_number(campaign)
        tasks = campaign.planner.submitted(n)
        names = {task.option for task in tasks}
        if not unfinished and names <= judged:
            return  # none is left, or only what cannot be moved out of the inbox
        judged |= names
        campaign.show_phase(in_phase("ANALYZE", "patches from the inbox"))
        _run_round(campaign, n, tasks, closing=False)


def _next_number(campaign: RunningCampaign) -> int:
    rounds = campaign.context.reader.rounds(campaign.setup.id)
    return max((round.n for round in rounds), default=1) + 1


def _run_round(campaign: RunningCampaign, n: int, tasks: Sequence[Task], *,
               closing: bool) -> None:
    """Run one round, measure the headline, and record the round's result."""
    context, setup = campaign.context, campaign.setup
    limit = setup.manifest.pool.workers or pool_size.default_workers(setup)
    round = ActiveRound(
        keeper=campaign.keeper, records=campaign.records, meter=campaign.meter,
        pool=Pool(setup, campaign.workers, limit, context.messages, context.fleet,
                  round=n, manifest=lambda: context.setup.manifest,
                  used=lambda: campaign.meter.spent),
        n=n, base=setup.repo.tip, closing=closing)
    result = run_round(
        round, tasks, context.reader.candidates(setup.id, states=("captured", "verified")),
        apply_approvals=campaign.apply_approvals,
        show_phase=lambda phase: campaign.show_phase(in_phase(phase, f"round {n}")),
        reason_to_end_workers=campaign.planner.workers_deadline()
        if not campaign.decide_only else lambda candidates, gains: "")
    campaign.measure_headline()
    rolled_back = [event.destination for event in kept_commits.rollbacks(context.reader, setup.id)
                   if event.round == n and not event.ends]
    campaign.meter.note()
    row = campaign.row()
    context.writer.end_round(
        setup.id, n, outcome=result.outcome, summary="; ".join([result.summary, *rolled_back]),
        best_speedup=1.0 if row.best_commit == row.base_commit else row.speedup)
    _note_outages(campaign, n)
    tips.learn(context)
    patch_reviewer.review_waiting(context)
    campaign.write_records()


def _note_outages(campaign: RunningCampaign, n: int) -> None:
    """Record whose provider did not answer in round `n`; a round lost to that does not count."""
    setup, past = campaign.setup, campaign.planner.history()
    if n in past.outages:
        down = outages.of(past, campaign.context.reader, setup.id, setup.manifest.pool)
        campaign.context.writer.set_campaign(
            setup.id, kind="outage", rounds_max=past.rounds_max(last_round(setup.manifest)),
            payload={"round": n, "message": "; ".join(map(str, down))})


def _wait_for_providers(campaign: RunningCampaign) -> str:
    """Wait until an agent's provider may be asked again, or there is something else to do.

    Return why the campaign ends if no provider has answered for too long.
    """
    setup, planner, controls = campaign.setup, campaign.planner, campaign.controls
    limit_s, tip, patches = setup.manifest.pool.outage_s, setup.repo.tip, submitted(setup)
    first = min(planner.left_out, key=lambda outage: outage.retry_at)
    end = max(outage.began_at for outage in planner.left_out) + limit_s
    if time.time() >= end:
        return f"no provider of a model has answered for {limit_s:g} s (pool.outage_s); " \
            f"kopt resume asks again; {first.author}: {first.reason}"
    campaign.context.writer.tick_campaign(setup.id, phase=in_phase(
        "ANALYZE", f"waiting for a model's provider; {first}"))
    budget_ends = planner.workers_deadline()
    while first.waits(now := time.time()) and now < end and not controls.paused and (
            campaign.setup is setup) and setup.repo.tip == tip and submitted(setup) == patches \
            and not budget_ends(0, 0):
        campaign.context.wait()
        campaign.apply_approvals()
    return ""


def _wait_while_paused(campaign: RunningCampaign) -> None:
    """Wait until a paused campaign is resumed; approvals are still carried out."""
    if not campaign.controls.paused:
        return
    campaign.set_state("paused", "paused")
    campaign.meter.pause()
    while campaign.controls.paused:
        campaign.context.wait()
        campaign.apply_approvals()
    campaign.meter.resume()
    campaign.set_state("running", in_phase("ANALYZE", "resumed"))
