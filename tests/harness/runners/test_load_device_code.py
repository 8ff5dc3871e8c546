"""A compiled entry gets its arguments as in C, then torch's stream; here tested on the CPU."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.child.oracle.reference import BaselineReference

SOURCE = """
#include <stdint.h>
static const char *failed;
const char *kopt_last_error(void) { const char *was = failed; failed = 0; return was; }
void twice(const float *x, float *out, float factor, int64_t n, double low, uint8_t flag,
           int32_t more, int16_t small, void *stream) {
    if (stream != (void *)4321 || flag != 200 || more != -3 || small != -300 || low != 0.1)
        failed = "arguments";
    for (int64_t i = 0; i < n; i++) out[i] = factor * x[i];
}
"""
SIZE = 16
PLAIN = {"shape": [SIZE], "nbytes": 4 * SIZE, "dtype": "float32", "stored": "float32",
         "weight": False, "strided": False}
SCALARS = [("float32", 2.0), ("int64", SIZE), ("float64", 0.1), ("uint8", 200), ("int32", -3),
           ("int16", -300)]
TENSORS: list[dict[str, Any]] = [
    {**PLAIN, "name": "x", "role": "input", "offset": 0},
    {**PLAIN, "name": "out", "role": "output", "offset": 4 * SIZE},
    *({"name": f"s{number}", "role": "scalar", "dtype": dtype, "value": value}
      for number, (dtype, value) in enumerate(SCALARS))]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a request to load a CPU library in place of one that launches kernels."""
    from harness.child.run import load_device_code

    library = tmp_path / "kernel.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE,
                   text=True, check=True)
    monkeypatch.setattr(load_device_code, "make_context", lambda device: None)
    monkeypatch.setattr(load_device_code, "_stream", lambda: 4321)
    return {"artifact": str(library), "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
            "entry": "twice", "device": "cpu", "interpret": False, "returns": False,
            "launches": {}, "language": "cuda"}


def test_arguments_reach_the_entry_by_value_and_by_address(job: dict[str, Any]) -> None:
    import torch

    from harness.child.run.load_device_code import DeviceKernel

    kernel = DeviceKernel(job, None)
    slot = torch.zeros(8 * SIZE, dtype=torch.uint8)
    call = kernel.arguments(TENSORS, slot)
    values = call.buffers[0].tensor.copy_(torch.arange(SIZE))
    kernel.call(call)
    assert torch.equal(call.buffers[1].tensor, 2 * values)


def test_baseline_computes_the_expected_values(job: dict[str, Any]) -> None:
    import torch

    from harness.child.oracle.arrays_torch import TorchArrays

    arrays = TorchArrays("cpu")
    reference = BaselineReference(arrays, job)
    drawn = {"x": torch.arange(SIZE, dtype=torch.float32)}
    [expected] = reference.results(TENSORS, reference.values(TENSORS, drawn))
    assert torch.equal(expected, 2 * drawn["x"])


def test_failed_launch_raises_an_error_at_the_call(job: dict[str, Any]) -> None:
    import torch

    from harness.child.run.load_device_code import DeviceKernel

    kernel = DeviceKernel(job, None)
    wrong = [*TENSORS[:-1], {**TENSORS[-1], "value": 3}]
    with pytest.raises(RuntimeError, match="a launch failed: arguments"):
        kernel.call(kernel.arguments(wrong, torch.zeros(8 * SIZE, dtype=torch.uint8)))
