"""An error of the baseline excuses no candidate; a fault of the machine raises EnvironmentFault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.compile.kernel import Kernel
from harness.errors import EnvironmentFault
from harness.isolation.rpc import Peer
from harness.runners.runner_pool import RunnerPool
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.kernels import kernel_case

RIGHT = "import os, torch\ndef double(x, out):\n    {before}\n    out.copy_(2 * x)\n"
WRONG = "import torch\ndef double(x, out):\n    out.copy_(2 * x if {exact} else 3 * x)\n"
ON_CONSTANT = "if bool((x == x[0]).all()): "
"""Runs the statement behind it on constant inputs only."""
WRONG_ON_CONSTANT = WRONG.format(exact="not bool((x == x[0]).all())")


def judge(folder: Path, candidate: str, baseline: str) -> Verdict:
    return kernel_case.judge(folder, candidate, baseline, of=kernel_case.target(language="python"),
                             plan=Plan(looks=(1,)), distributions=("normal", "constant"))


@pytest.mark.parametrize("error", [
    "raise OSError(28, 'No space left on device')", "raise MemoryError",
    *(pytest.param(error, marks=pytest.mark.slow)
      for error in ("open('/no/such/file')", "raise PermissionError('no')")),
    "raise type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory')"])
def test_a_file_or_memory_error_of_the_baseline_is_the_machines(error: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="the baseline fails on constant inputs, twice"):
        judge(tmp_path, WRONG_ON_CONSTANT, RIGHT.format(before=ON_CONSTANT + error))


@pytest.mark.parametrize("error", [
    "raise ValueError('unlike me')", "os.kill(os.getpid(), 11)",
    pytest.param("os._exit(3)", marks=pytest.mark.slow)])
def test_other_errors_of_the_baseline_excuse_no_candidate(error: str, tmp_path: Path) -> None:
    verdict = judge(tmp_path, WRONG_ON_CONSTANT, RIGHT.format(before=ON_CONSTANT + error))
    assert verdict.valid and not verdict.correct, verdict
    assert any("does not excuse a candidate" in note for note in verdict.notes), verdict.notes


def test_wrong_answer_of_the_baseline_excuses_the_candidate(tmp_path: Path) -> None:
    verdict = judge(tmp_path, WRONG_ON_CONSTANT, WRONG_ON_CONSTANT.replace("3 * x", "4 * x"))
    assert verdict.valid and verdict.correct, verdict
    assert any("the baseline itself fails on them" in note for note in verdict.notes)


def test_a_baseline_that_fails_once_is_tried_in_another_process(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be ended from outside; a wrong answer of the next one still excuses."""
    start, failed = RunnerPool.start, list[str]()

    def start_badly(self: RunnerPool, kernel: Kernel, **options: Any) -> Peer:
        peer = start(self, kernel, **options)
        if kernel.name == "incumbent" and not failed:
            failed.append("once")
            peer._guarded.kill()
        return peer

    monkeypatch.setattr(RunnerPool, "start", start_badly)
    verdict = judge(tmp_path, WRONG_ON_CONSTANT, WRONG_ON_CONSTANT.replace("3 * x", "4 * x"))
    assert verdict.correct and failed, verdict


def test_a_baseline_that_is_killed_is_the_machines_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="twice in a row"):
        judge(tmp_path, WRONG_ON_CONSTANT,
              RIGHT.format(before=ON_CONSTANT + "os.kill(os.getpid(), 9)"))
