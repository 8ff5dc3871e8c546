"""What a campaign does with its best before it reports: the whole program with and without it."""

from __future__ import annotations

from engine.desk import Desk
from engine.fleet import NoIdleGpu
from engine.judge import describe_speedup
from engine.verifier import Job
from harness.errors import KoptError


def due(desk: Desk) -> bool:
    """Tell whether the whole program is to be run with the best and without it."""
    lineage = desk.setup.lineage
    return bool(desk.setup.manifest.e2e_command) and lineage.best != lineage.base and \
        desk.recorded(lineage.best[:12], "e2e", lineage.tree_of(lineage.base)) is None


def end_to_end(desk: Desk) -> None:
    """Run the whole program that the manifest names with the best and without it, and record what
    came of it: a gain of the kernel may cost the program something.
    """
    lineage, campaign = desk.setup.lineage, desk.setup.id
    best, base = lineage.best, lineage.tree_of(lineage.base)
    try:
        verdict = desk.verdict(Job(
            purpose="e2e", candidate=best[:12], slot="e2e", candidate_tree=lineage.tree_of(best),
            incumbent_tree=base, alpha=desk.setup.manifest.decision.alpha))
    except NoIdleGpu:
        raise
    except KoptError as error:
        desk.writer.event(campaign, "warning", "e2e", message=str(error))
        return
    lost = ": what the kernel gains, the program loses" if (verdict.speedup_high or 1.0) < 1 else ""
    told = verdict.rejected_reason or f"end to end {describe_speedup(verdict)}{lost}"
    with desk.writer.transaction():
        desk.writer.add_verdict(campaign, best[:12], verdict, purpose="e2e")
        desk.writer.event(campaign, "e2e", best, message=told)
