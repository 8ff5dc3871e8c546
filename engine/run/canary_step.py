"""The canary of a campaign: asked once, after the baseline, and recorded when it has shown."""

from __future__ import annotations

from engine.context import EngineContext
from engine.verify import canary
from engine.verify.verifier import VerdictRequest
from harness.verdict import Verdict

NAME = "canary"
"""What stands for a candidate in its verdict."""


def due(context: EngineContext) -> bool:
    """Tell whether it is to be asked yet."""
    repo = context.setup.repo
    return context.recorded(NAME, canary.PURPOSE, repo.tree_of(repo.base)) is None


def look(context: EngineContext) -> None:
    """See that a broken copy of what candidates change does not pass; records it and warnings.

    Raises InputError if it passes: whoever starts the campaign again is told again.
    """
    setup, asked = context.setup, dict[str, Verdict]()
    base = setup.repo.tree_of(setup.repo.base)

    def ask(broken: str) -> Verdict:
        asked[broken] = context.verdict(VerdictRequest(
            purpose=canary.PURPOSE, candidate=NAME, slot=NAME, candidate_tree=broken,
            incumbent_tree=base, alpha=setup.manifest.decision.alpha))
        return asked[broken]

    warnings = canary.of_campaign(setup, ask)
    with context.writer.transaction():
        for warning in warnings:
            context.writer.event(setup.id, "warning", NAME, message=warning)
        if asked:
            whole = next(iter(asked.values()))
            context.writer.add_verdict(setup.id, NAME, whole, purpose=canary.PURPOSE)
