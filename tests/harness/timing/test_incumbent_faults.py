"""An incumbent fails while it is timed: which side is at fault, and when to measure again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from harness.compile.kernel import Kernel
from harness.errors import IncumbentFault
from harness.isolation.rpc import Peer
from harness.runners.runner_pool import RunnerPool
from harness.tasks.target import ConfigClass
from tests.support.kernels.c_case import FAST, RIGHT, Bench, judge, kernel, target


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    started = Bench(tmp_path_factory.mktemp("bench"),
                    target(classes=(ConfigClass(name="even", shape={"n": 8192}),)))
    yield started
    started.oracle.close()


def test_incumbent_that_also_crashes_without_a_candidate_is_an_incumbent_fault(
        tmp_path: Path) -> None:
    with pytest.raises(IncumbentFault, match="the incumbent fails alone: crashed"):
        judge(tmp_path, FAST, incumbent=kernel("abort();"))


def test_incumbent_that_crashes_only_with_a_candidate_is_the_candidates_fault(
        tmp_path: Path) -> None:
    """The candidate may have taken memory that the incumbent needs."""
    crashing_late = kernel("static int calls; if (++calls > 3000) abort(); " + RIGHT)
    verdict = judge(tmp_path, FAST, incumbent=crashing_late)
    assert verdict.rejected_reason == (
        "failed while timed: beside it the incumbent failed twice: crashed (SIGABRT)"), verdict


def test_incumbent_that_fails_once_is_measured_again_and_no_candidate_is_rejected(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    start_all, starts = RunnerPool.start_all, count()

    def killing_once(pool: RunnerPool, kernels: Sequence[Kernel], **fields: Any) -> list[Peer]:
        peers = start_all(pool, kernels, **fields)
        if next(starts) == 0:
            next(peer for peer in peers if peer.name == "incumbent").kill()
        return peers
    monkeypatch.setattr(RunnerPool, "start_all", killing_once)
    verdict = bench.judge(FAST)
    assert verdict.valid and verdict.correct and verdict.latency_us is not None, verdict
    [detail] = [line.detail for line in verdict.evidence if line.kind == "repeated"]
    assert "beside the candidate, the incumbent failed: " in detail
    assert "second measurement, which counts" in detail
