"""Without a GPU a watched program that asks for CUDA gets the CPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.call_trace import watched_calls
from harness.call_trace.watched_calls import WatchedFunction

KERNELS = """\
import torch


def double(x, weight):
    assert x.is_cuda and torch.cuda.get_device_capability() >= (7, 0)
    out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
    with torch.cuda.device(x.device):
        out.copy_(2 * x * weight)
    return out
"""
PROGRAM = """\
import torch
from kernels import double

assert torch.cuda.is_available()
generator = torch.Generator(device="cuda").manual_seed(3)
x = torch.randn(4, 8, device=torch.device("cuda:0"), generator=generator)
layer = torch.nn.Linear(8, 8).cuda().to("cuda")
y = double(layer(x).detach(), torch.ones(8).cuda())
torch.cuda.synchronize()
print(y.cpu().shape)
"""


@pytest.mark.parametrize("on_cpu", [True, False])
def test_program_that_names_cuda_runs_on_a_machine_without_a_gpu(
        tmp_path: Path, on_cpu: bool) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "program.py").write_text(PROGRAM)
    function = WatchedFunction(file=os.path.realpath(tmp_path / "kernels.py"), name="double",
                               lines=(4,))
    observed = watched_calls.watch([sys.executable, "program.py"], function, tmp_path,
                                   interpret=False, on_cpu=on_cpu)
    assert observed.outcome.ok == on_cpu, observed.outcome.stderr
    assert [call.args["x"].shape for call in observed.calls] == [(4, 8)] * on_cpu
