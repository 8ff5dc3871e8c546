"""Which errors of torch blame a single card, and how an unreachable card is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import kernel
from harness.compile.place import Place, place_on
from harness.devices import inventory
from harness.errors import DeviceFault, EnvironmentFault
from harness.runners.runner_pool import RunnerPool
from harness.runners.session import PYTHON_LIMITS
from harness.runners.startup import unreachable_fault
from tests.support.kernels.kernel_case import target, tree

PLACE = Place(device="cuda:0", scratch="/nowhere")


@pytest.mark.parametrize(("why", "of_the_card"), [
    ("Torch not compiled with CUDA enabled", False),
    ("The NVIDIA driver on your system is too old (found version 11040)", False),
    ("Found no NVIDIA driver on your system", False),
    ("No CUDA GPUs are available", True),
    ("CUDA error: uncorrectable ECC error encountered", True),
    ("CUDA unknown error - this may be due to an incorrectly set up environment", True)])
def test_only_faults_of_one_card_blame_the_card(why: str, of_the_card: bool) -> None:
    fault = unreachable_fault(why, PLACE)
    assert isinstance(fault, DeviceFault) == of_the_card and why in str(fault)


@pytest.mark.slow
def test_error_for_card_unreachable_by_torch_is_one_line(tmp_path: Path) -> None:
    """Inside and outside of namespaces; torch has no CUDA on this machine."""
    at = Path(tree(tmp_path / "tree", "def double(x, out):\n    out.copy_(2 * x)\n"))
    task = target(language="python")
    place = place_on(inventory.find("cpu"), "python", scratch=str(tmp_path / "scratch"),
                     python=None, env={})
    made = kernel.make(task, at, "candidate", replace(place, device="cuda:0"))
    with RunnerPool(PYTHON_LIMITS) as runners, \
            pytest.raises(EnvironmentFault, match="torch reaches no GPU: Torch not compiled"):
        runners.start(made)
