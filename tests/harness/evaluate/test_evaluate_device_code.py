"""Without an NVIDIA GPU a CUDA candidate is compiled and audited, and not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from harness.errors import InputError
from harness.evaluate.evaluate import evaluate
from harness.loop.loop import loop
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import COMPILED, Verdict
from tests.support.kernels import device_case
from tests.support.kernels.device_case import GLOBAL, needs_nvrtc


def judge(folder: Path, candidate: str) -> Verdict:
    base = str(device_case.tree(folder / "incumbent", GLOBAL))
    trees = Trees(candidate=str(device_case.tree(folder / "candidate", candidate)),
                  incumbent=base, reference=base)
    return evaluate(device_case.target(), trees, inventory.find("cpu"), Settings(
        scratch=str(folder / "scratch"), plan=Plan(), python=device_case.NVRTC_PYTHON))


@needs_nvrtc
def test_candidate_that_compiles_is_not_judged(tmp_path: Path) -> None:
    verdict = judge(tmp_path, GLOBAL.replace("TILE 256", "TILE 512"))
    assert verdict.valid and verdict.not_judged == \
        "cuda kernels need an NVIDIA GPU; cpu is not one"
    assert [entry.detail.partition(":")[0] for entry in verdict.evidence
            if entry.kind == COMPILED] == ["sm_90a twice (odd, big)"], verdict.evidence


@needs_nvrtc
def test_candidate_that_does_not_compile_is_rejected(tmp_path: Path) -> None:
    verdict = judge(tmp_path, GLOBAL.replace("x[i]", "y[i]"))
    assert not verdict.valid and 'identifier "y" is undefined' in (verdict.rejected_reason or "")


def test_loop_is_refused(tmp_path: Path) -> None:
    base = str(device_case.tree(tmp_path / "base", GLOBAL))
    with pytest.raises(InputError, match="cuda kernels need an NVIDIA GPU"):
        loop(device_case.target(), SearchJob(tree=base, reference=base), inventory.find("cpu"),
             Settings(scratch=str(tmp_path / "scratch"), plan=Plan()))
