"""The `transform` backend applies a named transformation; a campaign keeps it if it is faster."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from engine.transformations.transformation import DoesNotApply
from engine.workers import transform
from harness.devices import inventory
from harness.errors import Refused
from tests.support.agents import worker_bench
from tests.support.engines import campaigns
from tests.support.kernels import c_case

NORMS = """\
#include <math.h>
#include <stdint.h>

void norms(const float *x, float *out, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int64_t i = 0; i < cols; i++) sum += x[r * cols + i] * x[r * cols + i];
        out[r] = sqrtf(sum);
    }
}
"""
TASK: dict[str, Any] = {
    "op": "norms", "source": "scale.c", "entry": "norms", "reference": "reference.py:norms",
    "build": ["-O2"], "flops": "2*rows*cols",
    "args": [{"name": "x", "dtype": "float32", "shape": ["rows", "cols"]},
             {"name": "out", "dtype": "float32", "shape": ["rows"], "role": "output"},
             {"name": "rows", "dtype": "int64", "value": "rows"},
             {"name": "cols", "dtype": "int64", "value": "cols"}],
    "classes": [{"name": "wide", "shape": {"rows": 16, "cols": 4096}}]}


def work(option: str, tree: Path) -> str:
    bench = worker_bench.bench(c_case.target(), inventory.find("cpu"), tree, tree, fleet=None)
    task = worker_bench.task("transform", option=option, trials=4)
    return transform.work(task, bench, lambda *_: None, threading.Event()).summary


def test_change_without_knobs_is_written_and_needs_no_device(tmp_path: Path) -> None:
    (tmp_path / "twice.c").write_text(c_case.FAST)
    assert work("c-restrict", tmp_path) == "restrict on the pointers of twice"
    assert "const float *restrict x, float *restrict out" in (tmp_path / "twice.c").read_text()


def test_option_with_a_path_changes_that_file(tmp_path: Path) -> None:
    (tmp_path / "twice.c").write_text(c_case.FAST)
    (tmp_path / "other.c").write_text(c_case.FAST.replace("twice", "again"))
    assert work("c-restrict:other.c", tmp_path) == "restrict on the pointers of again"
    assert "restrict" in (tmp_path / "other.c").read_text()
    assert (tmp_path / "twice.c").read_text() == c_case.FAST


def test_unknown_or_unfitting_transformation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.c").write_text(c_case.FAST)
    with pytest.raises(Refused, match="no transformation 'c-nothing'"):
        work("c-nothing", tmp_path)
    with pytest.raises(DoesNotApply, match="no innermost loop reduces"):
        work("c-accumulators", tmp_path)


@pytest.mark.slow
def test_campaign_without_model_template_or_knob_keeps_a_transformation(tmp_path: Path) -> None:
    setup = campaigns.create(
        tmp_path, kernel=NORMS, task=TASK, max_iterations=2,
        reference="def norms(x):\n    return (x * x).sum(axis=1) ** 0.5\n",
        pool={"slots": 4, "trials": 4, "workers": 2})
    engine = campaigns.run(setup)
    assert engine.error is None
    kept = [candidate for candidate in campaigns.candidates(setup) if candidate.state == "kept"]
    assert kept and (campaigns.campaign(setup).speedup or 0.0) > 1.5
    with campaigns.reading(setup) as reader:
        slots = [slot for slot in reader.slots(setup.id) if slot.backend == "transform"]
    assert {slot.option for slot in slots} >= {"c-accumulators", "c-relaxed-math"}
    assert any(slot.candidate == kept[0].id for slot in slots)
    assert all(slot.idea for slot in slots)  # each follows a row of the table of strategies
