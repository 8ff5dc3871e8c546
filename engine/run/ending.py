"""How a run ends: with the campaign, before it (cut short), or after applying late approvals."""

from __future__ import annotations

import json
import logging

import msgspec

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import waiting_line
from engine.history.campaign_view import NOT_RUN
from engine.journal.model_costs import ModelBill
from engine.journal.records import CampaignState, in_phase
from engine.judge.judge import describe_speedup
from engine.lineage import rollback
from engine.planning import tips
from engine.run.running_campaign import RunningCampaign
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictRequest
from harness.benchmark.verdict.whole_program import LEFT_OUT
from harness.errors import EnvironmentFault, KoptError
from harness.verdict import Verdict

ADVICE = "roll the kernel back, or do not merge it (e2e: {rollback: true} does it)"
"""What to do if the whole program is slower with the best."""
log = logging.getLogger("kopt.engine")


def finish(campaign: RunningCampaign, reason: str) -> None:
    """End a campaign that has a reason to stop: accept the best, run the whole program, report."""
    campaign.show_phase(in_phase("REPORT"))
    campaign.controls.look()
    if campaign.controls.reopening:
        stop = campaign.planner.stop()
        campaign.controls.answer_reopening(reason, stop.limit if stop.reason == reason else "")
    campaign.apply_approvals()
    accepted = _accept_best(campaign)
    _place_rest(campaign)
    slower = _run_end_to_end(campaign)
    tips.learn(campaign.context)
    accepted = "; ".join(filter(None, (accepted, slower)))
    if accepted:
        reason = accepted if accepted.startswith(reason) else f"{reason}; {accepted}"
    _record_stop(campaign, "waiting" if campaign.waiting_count() else "finished", reason)


def _accept_best(campaign: RunningCampaign) -> str:
    """Roll back to the newest commit that passes, if the best is incorrect; return why, or ""."""
    if not rollback.failing(campaign.context):
        return ""
    campaign.write_records()
    campaign.show_phase(in_phase(
        "REPORT", "final acceptance: rolling back to a commit that passes"))
    return campaign.roll_back(ends=not campaign.decide_only)


def _place_rest(campaign: RunningCampaign) -> None:
    """Place gains that a late decision or a rollback has released; measure what is kept.

    A best that fails its measurement is rolled back, which may release others.
    """
    context = campaign.context
    while context.reader.candidates(context.setup.id, states=("verified",)):
        best = campaign.setup.repo.best
        with campaign.phase(in_phase("VALIDATE", "retrying deferred gains on the best")):
            campaign.placing.place_verified()
        if campaign.setup.repo.best == best:
            return
        campaign.measure_headline()


def cut_short(campaign: RunningCampaign, state: CampaignState, reason: str) -> None:
    """Record an early end; after a `decide_only` run the campaign keeps its state."""
    if campaign.decide_only:
        _restore_state(campaign, campaign.before.state)
        return
    fresh = "; kopt run MANIFEST begins a new one with the project's files as they are now" \
        if state == "failed" else ""
    try:
        campaign.controls.answer_early_end(f"the campaign {state} again: {reason}{fresh}")
        _record_stop(campaign, state, reason, cut=True)
    except (OSError, EnvironmentFault) as error:
        log.warning("the stop summary cannot be written: %s", error)
        campaign.set_state(state, "", reason)


def decide(campaign: RunningCampaign) -> None:
    """Apply approvals to a campaign that no engine runs.

    It keeps its state, but a campaign that is over is `waiting` or `finished`, whichever is true.
    """
    context, before = campaign.context, campaign.before
    context.round = before.round
    campaign.controls.look()
    campaign.apply_approvals()
    campaign.measure_headline()  # an earlier engine may have kept without measuring it
    _accept_best(campaign)
    state, is_over = before.state, before.state in ("waiting", "finished")
    if is_over:
        _place_rest(campaign)
        _run_end_to_end(campaign)
        state = "waiting" if campaign.waiting_count() else "finished"
    tips.learn(context)
    if (is_over or state in ("stopped", "failed")) and \
            not _is_stop_recorded(context, campaign.waiting_count()):
        _record_stop(campaign, state, before.reason, cut=not is_over)
        return
    _restore_state(campaign, state)
    campaign.write_records()


def _restore_state(campaign: RunningCampaign, state: CampaignState) -> None:
    before = campaign.before
    campaign.set_state(state, before.phase, before.reason, rollback.doubt(campaign.context))


def _record_stop(campaign: RunningCampaign, state: CampaignState, reason: str, *,
                 cut: bool = False) -> None:
    """Record the stop and what was spent; a stop that is `cut` short does not state a result.

    The journal says so only once the files do: an engine killed in between ends the campaign again.
    """
    doubt, setup = rollback.doubt(campaign.context), campaign.setup
    campaign.meter.note()
    spent = campaign.meter.spent
    models = campaign.context.reader.model_bills().get(setup.id, ModelBill())
    campaign.write_records()  # most of it before the transaction, which holds up other writers
    with campaign.context.writer.transaction():
        campaign.context.writer.event(
            setup.id, "campaign.stop", setup.repo.best, reason=reason, doubt=doubt,
            wall_s=spent.wall_s, trials=spent.trials, cost=spent.cost,
            waiting=campaign.waiting_count(),
            **({"models": msgspec.to_builtins(models)} if models.attempts else {}),
            provisional=waiting_line.provisional(campaign.context.reader, setup.id),
            nothing_left_on=campaign.nothing_left_on,
            **({rollback.CUT: True} if cut else {}))
        campaign.set_state(state, "", reason, doubt)
        failpoint("stop.recorded")
        campaign.records.write_all(campaign.context.writer.reader())


def _run_end_to_end(campaign: RunningCampaign) -> str:
    """Run the whole program in the wall time that is left; late approvals have no limit.

    If it is significantly slower with the best, roll back if the manifest says so, else recommend
    it; return why, "" otherwise.
    """
    context, manifest = campaign.context, campaign.setup.manifest
    summaries: list[str] = []
    while campaign.setup.repo.best != campaign.setup.repo.base:
        best = campaign.setup.repo.best
        if manifest.e2e_command and context.recorded(best[:12], "e2e") is None:
            campaign.show_phase(in_phase(
                "REPORT", "end to end: the whole program with the best and without it"))
            wall_s = None if campaign.decide_only else campaign.planner.budget.wall_s
            left_s = None if wall_s is None else max(0.0, wall_s - campaign.meter.spent.wall_s)
            end_to_end(context, left_s=left_s)
        verdict = context.recorded(best[:12], "e2e") if manifest.e2e_command else None
        if verdict is None or not is_slower(verdict):
            break
        why = f"the whole program is slower with {best[:12]}: {describe_speedup(verdict)}"
        if not manifest.e2e.rollback:
            break
        summaries.append(campaign.step_back(why, ends=not campaign.decide_only))
        campaign.measure_headline()
        _place_rest(campaign)
    return "; ".join(summaries)


def _is_stop_recorded(context: EngineContext, waiting: int) -> bool:
    """Return whether the last recorded stop is about this best and this many waiting candidates."""
    stops = context.reader.events_of(context.setup.id, "campaign.stop")[-1:]
    return bool(stops) and stops[0].ref == context.setup.repo.best and \
        json.loads(stops[0].payload).get("waiting") == waiting


def end_to_end(context: EngineContext, *, left_s: float | None = None) -> None:
    """Run the whole program with the best and without it, and record the result.

    A gain of the kernel may cost the program something. If `left_s` is too short, there are fewer
    runs, or none, which is recorded; a later engine with more time repeats them. A fault is a
    warning, except NoDeviceAvailable.
    """
    if left_s is not None and left_s <= 0:
        _record_not_run(context, "not run: no wall time is left")
        return
    repo, campaign = context.setup.repo, context.setup.id
    best, base = repo.best, repo.tree_of(repo.base)
    try:
        verdict = context.verdict(VerdictRequest(
            purpose="e2e", candidate=best[:12], slot="e2e", candidate_tree=repo.tree_of(best),
            incumbent_tree=base, alpha=context.setup.manifest.decision.alpha, left_s=left_s))
    except NoDeviceAvailable:
        raise
    except KoptError as error:
        context.writer.event(campaign, "warning", "e2e", message=str(error))
        return
    if any(fact.kind == LEFT_OUT for fact in verdict.evidence):
        _record_not_run(context, verdict.rejected_reason or "")
        return
    message = verdict.rejected_reason or f"end to end {describe_speedup(verdict)}" + (
        f": the kernel is faster, and the program slower; {ADVICE}" if is_slower(verdict) else "")
    with context.writer.transaction():
        context.writer.add_verdict(campaign, best[:12], verdict, purpose="e2e")
        context.writer.event(campaign, "e2e", best, message=message)


def is_slower(verdict: Verdict) -> bool:
    """Return whether the whole program is significantly slower."""
    return (verdict.speedup_high or 1.0) < 1


def _record_not_run(context: EngineContext, reason: str) -> None:
    best = context.setup.repo.best
    context.writer.event(context.setup.id, NOT_RUN, best, commit=best[:12], message=reason)
