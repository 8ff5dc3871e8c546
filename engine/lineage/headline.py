"""The headline: the best commit's speedup against the baseline, and whether it is accepted.

Accepted scores do not decrease. If the headline falls, or if a core class or the whole is
significantly slower than the baseline, it is measured again, and only the second result counts. A
drop that noise may explain is accepted with a warning: the gain was significant when it was kept.
"""

from __future__ import annotations

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history.waiting_line import PROVISIONAL
from engine.judge.judge import core_loss, describe_speedup
from engine.lineage.commit import describe_drop
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictRequest
from harness.errors import KoptError
from harness.verdict import Verdict

PURPOSE = "headline"
DOUBTED = "headline-doubted"
"""Purpose of a first measurement that is repeated."""


def recorded(context: EngineContext, commit: str, purpose: str = PURPOSE) -> Verdict | None:
    """Return the recorded verdict on a kept commit against the baseline."""
    return context.recorded(commit[:12], purpose)


def due(context: EngineContext) -> bool:
    """Return whether the best has no verdict against the baseline yet."""
    repo = context.setup.repo
    return repo.best != repo.base and recorded(context, repo.best) is None


def fault(context: EngineContext, commit: str, verdict: Verdict) -> str:
    """Return why a correct commit cannot be accepted, by its significant results; "" if it can."""
    significant_drop = describe_drop(_before(context, commit), verdict.speedup_high)
    return describe_loss(verdict) or (significant_drop and _doubt(context, commit, verdict))


def _doubt(context: EngineContext, commit: str, verdict: Verdict) -> str:
    """Return why a correct commit needs a second measurement, or ""."""
    return describe_loss(verdict) or describe_drop(_before(context, commit), verdict.speedup)


def describe_loss(verdict: Verdict) -> str:
    """Describe a significant loss against the baseline, overall or in a core class, or ""."""
    if verdict.speedup_high is not None and verdict.speedup_high < 1:
        return f"the best is significantly slower than the baseline: {describe_speedup(verdict)}"
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
        is_correct = verdict.valid and verdict.correct
        if not is_correct or not (why := _doubt(context, commit, verdict)):
            _accept(context, commit, verdict)
            return
        with writer.transaction():
            writer.add_verdict(campaign, commit[:12], verdict, purpose=DOUBTED)
            writer.event(campaign, "log", commit, message=f"{why}; it is measured again")
        failpoint("headline.doubted")
    verdict = _judged(context, commit)
    if verdict is not None:
        _accept(context, commit, verdict)
        failpoint("headline.again")


def measure_tip(context: EngineContext) -> None:
    """Measure the provisional best against the baseline, unless that is recorded."""
    repo = context.setup.repo
    if repo.tip != repo.best and recorded(context, repo.tip, PROVISIONAL) is None:
        record(context, repo.tip, PROVISIONAL)


def record(context: EngineContext, commit: str, purpose: str = PURPOSE) -> Verdict | None:
    """Measure a commit against the baseline and record its verdict; None after a fault."""
    verdict = _judged(context, commit, purpose)
    if verdict is not None:
        context.writer.add_verdict(context.setup.id, commit[:12], verdict, purpose=purpose)
    return verdict


def _accept(context: EngineContext, commit: str, verdict: Verdict) -> None:
    """Record a verdict as the headline's, and its speedup as the campaign's."""
    campaign, writer = context.setup.id, context.writer
    is_correct = verdict.valid and verdict.correct
    doubt = _doubt(context, commit, verdict) \
        if is_correct and not fault(context, commit, verdict) else ""
    with writer.transaction():
        writer.add_verdict(campaign, commit[:12], verdict, purpose=PURPOSE)
        if doubt:
            writer.event(campaign, "warning", commit, message=(
                f"{doubt}; it is accepted, since noise may explain the drop"))
        if verdict.speedup is not None:
            writer.set_campaign(
                campaign, kind="campaign.best", speedup=verdict.speedup,
                speedup_low=verdict.speedup_low, speedup_high=verdict.speedup_high,
                payload={"commit": commit, "speedup": verdict.speedup,
                         "low": verdict.speedup_low, "high": verdict.speedup_high})


def _judged(context: EngineContext, commit: str, purpose: str = PURPOSE) -> Verdict | None:
    repo = context.setup.repo
    try:
        return context.verdict(VerdictRequest(
            purpose=purpose, candidate=commit[:12], slot=PURPOSE,
            candidate_tree=repo.tree_of(commit), incumbent_tree=repo.tree_of(repo.base),
            alpha=context.setup.manifest.decision.alpha))
    except NoDeviceAvailable:
        raise  # the campaign ends in order, and its next engine measures instead
    except KoptError as error:
        context.writer.event(context.setup.id, "warning", commit, message=str(error))
        return None


def _before(context: EngineContext, commit: str) -> float | None:
    """Return the headline of the newest earlier commit that has one."""
    repo = context.setup.repo
    verdicts = (recorded(context, earlier)
                for earlier in reversed(repo.log(commit, repo.base)[:-1]))
    return next((verdict.speedup for verdict in verdicts
                 if verdict is not None and verdict.speedup), None)
