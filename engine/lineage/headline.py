"""What the best comes to against the baseline, and whether that may stand.

Accepted scores do not decrease: one that falls, or by which a core class or all of them lose, is
measured a second time, and only that counts. What may have fallen by noise alone stays, and is
told: its gain was sure when it was kept.
"""

from __future__ import annotations

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.judge.judge import core_loss, describe_speedup
from engine.lineage import commit as keep
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictRequest
from harness.errors import KoptError
from harness.verdict import Verdict

PURPOSE = "headline"
DOUBTED = "headline-doubted"
"""Of a first measurement that is not what it should be."""


def recorded(context: EngineContext, commit: str, purpose: str = PURPOSE) -> Verdict | None:
    """Return what the journal knows of a kept commit against the baseline."""
    repo = context.setup.repo
    return context.recorded(commit[:12], purpose, repo.tree_of(repo.base))


def due(context: EngineContext) -> bool:
    """Tell whether the best is still to be measured against the baseline."""
    repo = context.setup.repo
    return repo.best != repo.base and recorded(context, repo.best) is None


def fault(context: EngineContext, commit: str, verdict: Verdict) -> str:
    """Say why a right commit may not be the accepted one for what it measures for sure, if so."""
    sure = keep.fallen(_before(context, commit), verdict.speedup_high)
    return losing(verdict) or (sure and _doubt(context, commit, verdict))


def _doubt(context: EngineContext, commit: str, verdict: Verdict) -> str:
    """Say why a right commit is to be measured again, if so."""
    return losing(verdict) or keep.fallen(_before(context, commit), verdict.speedup)


def losing(verdict: Verdict) -> str:
    """Say that a verdict against the baseline is a loss for sure, of all classes or a core one."""
    if verdict.speedup_high is not None and verdict.speedup_high < 1:
        return f"the best is slower than the baseline for sure: {describe_speedup(verdict)}"
    if lost := core_loss(verdict.rows):
        return f"against the baseline {lost}"
    return ""


def measure(context: EngineContext) -> None:
    """Measure the best against the baseline and record it as the campaign's speedup."""
    commit, campaign, writer = context.setup.repo.best, context.setup.id, context.writer
    if recorded(context, commit, DOUBTED) is None:
        verdict = _judged(context, commit)
        if verdict is None:
            return
        right = verdict.valid and verdict.correct
        if not right or not (why := _doubt(context, commit, verdict)):
            _accept(context, commit, verdict)
            return
        with writer.transaction():
            writer.add_verdict(campaign, commit[:12], verdict, purpose=DOUBTED)
            writer.event(campaign, "log", commit, message=f"{why}; it is measured once more")
        failpoint("headline.doubted")
    verdict = _judged(context, commit)
    if verdict is not None:
        _accept(context, commit, verdict)
        failpoint("headline.again")


def accept(context: EngineContext, commit: str) -> Verdict | None:
    """Have an earlier kept commit measured against the baseline, with all tests; None for a fault.
    """
    verdict = _judged(context, commit)
    if verdict is not None:
        context.writer.add_verdict(context.setup.id, commit[:12], verdict, purpose=PURPOSE)
    return verdict


def _accept(context: EngineContext, commit: str, verdict: Verdict) -> None:
    """Record what the campaign has come to."""
    campaign, writer = context.setup.id, context.writer
    right = verdict.valid and verdict.correct
    doubt = _doubt(context, commit, verdict) \
        if right and not fault(context, commit, verdict) else ""
    with writer.transaction():
        writer.add_verdict(campaign, commit[:12], verdict, purpose=PURPOSE)
        if doubt:
            writer.event(campaign, "warning", commit, message=f"{doubt}; by noise, maybe: it stays")
        if verdict.speedup is not None:
            writer.set_campaign(
                campaign, kind="campaign.best", speedup=verdict.speedup,
                speedup_low=verdict.speedup_low, speedup_high=verdict.speedup_high,
                payload={"commit": commit, "speedup": verdict.speedup,
                         "low": verdict.speedup_low, "high": verdict.speedup_high})


def _judged(context: EngineContext, commit: str) -> Verdict | None:
    repo = context.setup.repo
    try:
        return context.verdict(VerdictRequest(
            purpose=PURPOSE, candidate=commit[:12], slot=PURPOSE,
            candidate_tree=repo.tree_of(commit), incumbent_tree=repo.tree_of(repo.base),
            alpha=context.setup.manifest.decision.alpha))
    except NoDeviceAvailable:
        raise  # the campaign ends in order, and its next engine makes up for it
    except KoptError as error:
        context.writer.event(context.setup.id, "warning", commit, message=str(error))
        return None


def _before(context: EngineContext, commit: str) -> float | None:
    """Return the headline of the newest commit below a kept one that has any."""
    repo = context.setup.repo
    found = (recorded(context, earlier)
             for earlier in reversed(repo.log(commit, repo.base)[:-1]))
    return next((one.speedup for one in found if one is not None and one.speedup), None)
