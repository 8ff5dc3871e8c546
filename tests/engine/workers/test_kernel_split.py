"""The split backend on kernel targets: classes that prefer other knobs get their own kernels."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.split.class_sizes import entry_parameters
from engine.split.languages.c_language import C
from engine.workers import kernel_split
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from tests.support.agents import worker_bench
from tests.support.engines import campaigns
from tests.support.searches.kernel_split_case import KERNEL, TARGET


@pytest.mark.slow
def test_sizes_that_prefer_other_knobs_get_kernels_of_their_own(tmp_path: Path) -> None:
    trees = {name: tmp_path / name for name in ("work", "before")}
    for tree in trees.values():
        tree.mkdir()
        (tree / "scale.c").write_text(KERNEL)
        (tree / "reference.py").write_text(campaigns.REFERENCE)
    bench = worker_bench.bench(TARGET, inventory.find("cpu"), trees["work"], tmp_path / "s",
                               baseline=str(trees["before"]), base_commit="c0")
    report = kernel_split.work(worker_bench.task("split", trials=6), bench, lambda *_: None,
                               threading.Event())
    assert report.ok and "class with n >= 40000: TILE=4096" in report.summary, report.summary
    assert report.hypothesis.startswith("a specialised kernel where n >= 40000 (large): TILE=4096")
    source = (trees["work"] / "scale.c").read_text()
    _, (block,) = C().read(source)
    assert block.entry == "scale" and block.kernel_for({"n": 60}) != block.kernel_for({"n": 40000})
    verdict = evaluate(TARGET, Trees(candidate=str(trees["work"]), incumbent=str(trees["before"]),
                                     reference=str(trees["before"])), inventory.find("cpu"),
                       Settings(scratch=str(tmp_path / "v"), plan=Plan(looks=(6,), alpha=0.05)))
    outcomes = {row.config_class: row.outcome for row in verdict.rows}
    assert verdict.correct and outcomes["large"] == "faster" and outcomes["small"] != "slower"
    assert not verdict.audit, verdict.audit


@pytest.mark.parametrize(("signature", "expected"), [
    ("const float *x, float *out, int64_t n", {"n": "n"}),
    ("const float *a, float *b, long length", {"n": "length"}),
    ("const float *x, float *out, float n", {}), ("const float *x, int64_t n", {})])
def test_scalars_of_a_task_are_matched_to_parameters_by_position(signature: str,
                                                                 expected: dict[str, str]) -> None:
    source = f"void other(int n) {{}}\nvoid scale({signature}) {{ (void)x; }}\n"
    assert entry_parameters(C(), source, TARGET) == expected
