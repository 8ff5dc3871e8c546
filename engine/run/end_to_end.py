"""What a campaign does with its best before it reports: the whole program with and without it."""

from __future__ import annotations

import json

from engine.context import EngineContext
from engine.history.campaign_view import NOT_RUN
from engine.judge.judge import describe_speedup
from engine.verify.fleet import NoDeviceAvailable
from engine.verify.verifier import VerdictRequest
from harness.benchmark.verdict.whole_program import LEFT_OUT
from harness.errors import KoptError


def due(context: EngineContext) -> bool:
    """Tell whether the whole program is to be run with the best and without it."""
    repo = context.setup.repo
    return bool(context.setup.manifest.e2e_command) and repo.best != repo.base and \
        context.recorded(repo.best[:12], "e2e", repo.tree_of(repo.base)) is None


def stopped(context: EngineContext, waiting: int) -> bool:
    """Tell whether the last stop says which commit is the best, and how many wait for a person."""
    told = context.reader.events_of(context.setup.id, "campaign.stop")[-1:]
    return bool(told) and told[0].ref == context.setup.repo.best and \
        json.loads(told[0].payload).get("waiting") == waiting


def end_to_end(context: EngineContext, *, left_s: float | None = None) -> None:
    """Run the whole program that the manifest names with the best and without it, and record what
    came of it: a gain of the kernel may cost the program something.

    With fewer seconds left than that takes there are fewer runs, or none, which is recorded; the
    next engine that comes here with more of them makes up for it.
    """
    if left_s is not None and left_s <= 0:
        _leave_out(context, "not run: nothing is left of the wall time")
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
        _leave_out(context, verdict.rejected_reason or "")
        return
    lost = ": what the kernel gains, the program loses" if (verdict.speedup_high or 1.0) < 1 else ""
    told = verdict.rejected_reason or f"end to end {describe_speedup(verdict)}{lost}"
    with context.writer.transaction():
        context.writer.add_verdict(campaign, best[:12], verdict, purpose="e2e")
        context.writer.event(campaign, "e2e", best, message=told)


def _leave_out(context: EngineContext, why: str) -> None:
    best = context.setup.repo.best
    context.writer.event(context.setup.id, NOT_RUN, best, commit=best[:12], message=why)
