"""The end-to-end run: the whole program with the best and without it, before the final report."""

from __future__ import annotations

import json

from engine.context import EngineContext
from engine.history.campaign_view import NOT_RUN
from engine.judge.judge import describe_speedup
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictRequest
from harness.benchmark.verdict.whole_program import LEFT_OUT
from harness.errors import KoptError


def due(context: EngineContext) -> bool:
    """Return whether the manifest names a whole program that was not run with this best."""
    repo = context.setup.repo
    return bool(context.setup.manifest.e2e_command) and repo.best != repo.base and \
        context.recorded(repo.best[:12], "e2e", repo.tree_of(repo.base)) is None


def stopped(context: EngineContext, waiting: int) -> bool:
    """Return whether the last recorded stop is about this best and this many waiting candidates."""
    stops = context.reader.events_of(context.setup.id, "campaign.stop")[-1:]
    return bool(stops) and stops[0].ref == context.setup.repo.best and \
        json.loads(stops[0].payload).get("waiting") == waiting


def end_to_end(context: EngineContext, *, left_s: float | None = None) -> None:
    """Run the whole program with the best and without it, and record the result.

    A gain of the kernel may cost the program something. With fewer than the needed seconds left
    (`left_s`) there are fewer runs, or none, which is recorded; an engine with more time makes up
    for it. A fault is a warning, except NoDeviceAvailable.
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
    slower = (verdict.speedup_high or 1.0) < 1
    message = verdict.rejected_reason or f"end to end {describe_speedup(verdict)}" + (
        ": the kernel is faster, and the program slower" if slower else "")
    with context.writer.transaction():
        context.writer.add_verdict(campaign, best[:12], verdict, purpose="e2e")
        context.writer.event(campaign, "e2e", best, message=message)


def _record_not_run(context: EngineContext, reason: str) -> None:
    best = context.setup.repo.best
    context.writer.event(context.setup.id, NOT_RUN, best, commit=best[:12], message=reason)
