"""Verdicts computed from costs in the sources, for tests of campaigns without measurements."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from engine.campaign.setup import Setup
from engine.verify import canary
from engine.verify.verifier import VerdictRequest, Verifier
from harness.tasks.target import Target
from harness.verdict import Row, Verdict

Cost = Callable[[Setup, str], float]
"""Returns the microseconds of a tree; raises Judged for one that is not to be timed."""


class Judged(Exception):
    """Carries the verdict on a tree that is wrong or broken."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict


def passes(setup: Setup, tree: str) -> float:
    """Return the cost of `campaigns.KERNEL`: its number of passes; 1 for a kernel without it."""
    found = re.search(rb"PASSES (\d+)", setup.repo.read(tree, "scale.c"))
    return float(found[1]) if found else 1.0


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, *, baseline: bool = False) -> Iterator[None]:
    """Delay verdicts on candidates (with `baseline`, on it too) until the `with` block ends."""
    released = threading.Event()

    def cost(setup: Setup, tree: str) -> float:
        if baseline or tree != setup.repo.tree_of(setup.repo.base):
            released.wait(60)
        return passes(setup, tree)

    install(monkeypatch, cost)
    try:
        yield
    finally:
        released.set()


def install(monkeypatch: pytest.MonkeyPatch, cost: Cost = passes) -> None:
    """Compute every verdict from the costs of its two trees."""
    monkeypatch.setattr(Verifier, "_verdict",
                        lambda verifier, job: _verdict(verifier.setup, job, cost))


def _verdict(setup: Setup, job: VerdictRequest, cost_of: Cost) -> Verdict:
    if job.purpose == canary.PURPOSE:
        return Verdict(valid=False, rejected_reason="it does not run",
                       incumbent_tree=job.incumbent_tree)
    config_class = setup.target.classes[0].name if isinstance(setup.target, Target) else "all"
    try:
        cost, before = (cost_of(setup, tree) for tree in (job.candidate_tree, job.incumbent_tree))
    except Judged as judged:
        return replace(judged.verdict, candidate_id=job.candidate, device="cpu",
                       incumbent_tree=job.incumbent_tree)
    ratio = math.log(before / cost)
    row = Row(config_class=config_class, correct=True, latency_us=cost, incumbent_us=before,
              pairs=3, outcome="faster" if ratio > 0.01 else "slower" if ratio < -0.01 else "tie",
              log_ratio=ratio, low=ratio - 0.001, high=ratio + 0.001, stderr=0.0003)
    speedup = before / cost
    return Verdict(valid=True, correct=True, latency_us=cost, latency_kind="reported", rows=(row,),
                   speedup=speedup, speedup_low=speedup * 0.999, speedup_high=speedup * 1.001,
                   candidate_id=job.candidate, incumbent_tree=job.incumbent_tree, device="cpu",
                   alpha=job.alpha)
