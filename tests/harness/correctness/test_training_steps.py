"""The training trace (rule 11) counts what a kernel recognises while only weights recur."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.audit.transfer import TRACE_STEPS
from harness.compile import kernel
from harness.compile.place import kind_of, place_on
from harness.correctness import runtime_audit
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.isolation.zygote_client import WarmStart
from harness.runners.oracle_client import Oracle
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from harness.runners.slots.case_memory import CaseMemory
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass
from harness.timing.plan import Plan
from tests.support.kernels.kernel_case import target, tree

pytestmark = pytest.mark.slow
TARGET = target(language="python", entry="apply", args=(
    Arg(name="x", dtype="float32", shape=("n", "n")),
    Arg(name="w", dtype="float32", shape=("n", "n"), weight=True),
    Arg(name="out", dtype="float32", shape=("n", "n"), role="output")),
    classes=(ConfigClass(name="one", shape={"n": 32}),), reference="reference.py:apply")
REFERENCE = "def apply(x, w):\n    return x @ w.T\n"
HEAD = "import torch\nseen = {}\n"
PLAIN = HEAD + "def apply(x, w, out):\n    torch.mm(x, w.t().contiguous(), out=out)\n"
BY_VERSION = HEAD + """
def apply(x, w, out):
    key = id(w), w._version, w.shape
    if key not in seen:
        seen.clear()
        seen[key] = w.t().contiguous()
    torch.mm(x, seen[key], out=out)
"""
BY_ADDRESS = HEAD + """
def apply(x, w, out):
    key = x.data_ptr()
    if key not in seen:
        seen[key] = x.contiguous().clone()
    torch.mm(x, w.t(), out=out)
"""
BY_CONTENT = BY_ADDRESS.replace("x.data_ptr()", "float(x[1, 1])")


def traced(folder: Path, source: str) -> list[tuple[int, int]]:
    """Return (weight hits, other hits) by step."""
    place = place_on(inventory.find("cpu"), "python", scratch=str(folder), python=None,
                     env={})
    warm = WarmStart(kind_of(place, "python"))
    place = replace(place, zygote=warm.zygote())
    built = kernel.make(TARGET, Path(tree(folder / "tree", source, REFERENCE)), "candidate", place)
    try:
        with RunnerPool(PYTHON_LIMITS) as runners, \
                runners.start(built) as runner, \
                Oracle(TARGET, folder / "tree", folder / "io", place) as oracle:
            case = oracle.make(TARGET.classes[0], "normal")
            memory = CaseMemory(oracle, runner, case)
            assert memory.call(case).bad == 0
            steps = runtime_audit.trace(memory, {"w"})
    finally:
        warm.close()
    assert [step.step for step in steps] == list(range(1, TRACE_STEPS + 1))
    return [(step.weight_hits, step.other_hits) for step in steps]


@pytest.mark.parametrize(("source", "expected"), [
    (PLAIN, (0, 0)), (BY_VERSION, (1, 0)), (BY_CONTENT, (0, 0))],
    ids=["no cache", "by version", "by contents"])
def test_only_weights_are_recognised_over_steps(source: str, expected: tuple[int, int],
                                                tmp_path: Path) -> None:
    assert traced(tmp_path, source) == [expected] * TRACE_STEPS


def test_reused_address_is_recognised(tmp_path: Path) -> None:
    hits = traced(tmp_path, BY_ADDRESS)
    assert sum(others for _, others in hits) >= TRACE_STEPS / 2


def test_training_step_verdict_includes_its_trace(tmp_path: Path) -> None:
    base = tree(tmp_path / "base", PLAIN, REFERENCE)
    verdict = evaluate(TARGET, Trees(candidate=tree(tmp_path / "tree", BY_VERSION, REFERENCE),
                                     incumbent=base, reference=base), inventory.find("cpu"),
                       Settings(scratch=str(tmp_path / "scratch"), plan=Plan(looks=(2,)),
                                distributions=("normal",)))
    assert verdict.correct and verdict.transfer is not None, verdict
    assert verdict.transfer.bucket == "W1"
    assert verdict.transfer.decision == "ACCEPT-with-asterisk"
    assert verdict.transfer.hit_rates is not None
    assert [(step.weight_hits, step.other_hits) for step in verdict.transfer.hit_rates] == \
        [(1, 0)] * TRACE_STEPS
    assert [finding.detail for finding in verdict.audit if finding.rule == "over-fit"] == \
        [verdict.transfer.reason]
    assert "not traced" not in verdict.transfer.reason
