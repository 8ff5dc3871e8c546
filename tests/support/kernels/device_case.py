"""Small CUDA kernels for tests: a launcher for nvcc, and a `__global__` function for NVRTC."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.tasks.target import Arg, ConfigClass, Launch, Target
from harness.tasks.task_file import check

GLOBAL = """#define TILE 256  // kopt: knob TILE in [128, 256, 512]
extern "C" __global__ void twice(const float *x, float *out, float factor, int n) {
    int i = blockIdx.x * TILE + threadIdx.x;
    if (i < n) out[i] = factor * x[i];
}
"""
LAUNCHER = GLOBAL.replace('extern "C" ', "static ").replace("twice", "twice_kernel") + """
extern "C" void twice(const float *x, float *out, float factor, int n, cudaStream_t stream) {
    twice_kernel<<<(n + TILE - 1) / TILE, TILE, 0, stream>>>(x, out, factor, n);
}
"""
REFERENCE = "def twice(x, factor, n):\n    return factor * x\n"
LAUNCH = Launch(grid=("(n + TILE - 1) // TILE",), block=("TILE",))
HAS_NVCC = shutil.which("nvcc") is not None
NVRTC_PYTHON = os.environ.get("KOPT_NVRTC_PYTHON", sys.executable)
"""The Python whose packages include NVRTC."""
HAS_NVRTC = sys.executable != NVRTC_PYTHON or importlib.util.find_spec("nvidia") is not None \
    or any(Path("/usr/local/cuda/lib64").glob("libnvrtc.so*"))
needs_nvcc = pytest.mark.skipif(not HAS_NVCC, reason="nvcc is not installed")
needs_nvrtc = pytest.mark.skipif(not HAS_NVRTC, reason="NVRTC is not installed")


def target(**fields: Any) -> Target:
    """Return a target that multiplies a vector of `n` numbers by two."""
    given: dict[str, Any] = {
        "op": "twice", "language": "cuda", "source": "kernel.cu", "entry": "twice",
        "reference": "reference.py:twice", "flops": "n", "launch": LAUNCH,
        "args": (Arg(name="x", dtype="float32", shape=("n",)),
                 Arg(name="out", dtype="float32", shape=("n",), role="output"),
                 Arg(name="factor", dtype="float32", value=2.0),
                 Arg(name="n", dtype="int32", value="n")),
        "classes": (ConfigClass(name="odd", shape={"n": 331}),
                    ConfigClass(name="big", shape={"n": 1 << 22}))}
    made = Target(**(given | fields))
    check(made)
    return made


def tree(folder: Path, source: str, reference: str = REFERENCE) -> Path:
    folder.mkdir(parents=True)
    (folder / "kernel.cu").write_text(source)
    (folder / "reference.py").write_text(reference)
    return folder
