"""Round 1: the unmodified code against itself, which gives its latency and this machine's noise."""

from __future__ import annotations

import time

from engine.context import EngineContext
from engine.journal.records import Round
from engine.planning import survey
from engine.task import GLOBAL
from engine.verify.verifier import VerdictRequest
from harness.errors import InputError
from harness.verdict import Verdict

NAME = "baseline"


def recorded(context: EngineContext) -> Verdict | None:
    """Return the baseline's verdict, None before it was measured."""
    repo = context.setup.repo
    return context.recorded(NAME, NAME, repo.tree_of(repo.base))


def measure(context: EngineContext) -> None:
    """Measure it and put it on record. Raises InputError where it fails its own check."""
    setup, writer = context.setup, context.writer
    base = setup.repo.base
    tree = setup.repo.tree_of(base)
    writer.start_round(Round(campaign=setup.id, n=1, scope=GLOBAL, incumbent=base,
                             started_at=time.time()))
    verdict = context.verdict(
        VerdictRequest(
            purpose=NAME,
            candidate=NAME,
            slot=NAME,
            candidate_tree=tree,
            incumbent_tree=tree,
            alpha=setup.manifest.decision.alpha,
            always_time=True,
        )
    )
    if not verdict.valid or not verdict.correct:
        why = verdict.rejected_reason or next(
            (f"class {r.config_class}: {r.note}" for r in verdict.rows if not r.correct), "")
        full = why.startswith("the project's full tests")
        raise InputError(f"the baseline does not pass its own check: {why}",
                         where=setup.target.source, fix="correct " + (
                             "the code, or full_test_command" if full else
                             "the kernel, the reference or the tolerance"))
    with writer.transaction():
        writer.add_verdict(setup.id, NAME, verdict, purpose=NAME)
        writer.event(setup.id, NAME, base, latency_us=verdict.latency_us,
                     noise=verdict.detectable_effect)
        writer.end_round(setup.id, 1, outcome="baseline", best_speedup=1.0,
                         summary=f"baseline: {survey.describe_baseline(verdict)}")


def untimed(context: EngineContext) -> str:
    """Say why nothing could ever be kept here: a Triton kernel is not timed without a GPU."""
    verdict = recorded(context)
    if verdict is None or verdict.latency_us is not None:
        return ""
    return f"nothing can be timed on {context.setup.device.name}: the baseline is correct, and " \
           f"{context.setup.target.language} needs a GPU to be measured"
