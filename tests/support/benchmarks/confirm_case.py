"""Parts of a benchmark whose kernel times a stand-in for CUPTI reports."""

from __future__ import annotations

from harness.devices.device import Device
from tests.support.benchmarks import kernel_time_case as case

FAKE_CARD = Device(id="cuda:0", kind="nvidia", name="a stand-in", uuid="GPU-of-a-test")
DRIVER = """
import ctypes, os
with open("runs", "a") as file:
    file.write("run\\n")
with open("kernels.txt", "w") as file:
    file.write(kernel.LAUNCHED)
if path := os.environ.get("CUDA_INJECTION64_PATH"):
    ctypes.CDLL(path).InitializeInjection()
"""
"""Loads the injected library, as CUDA's driver does when it starts."""
KERNELS_BEFORE = case.launched(("norm", 500, 30_000), ("flush", 500, 20_000))
TRACED = "import os\nif 'CUDA_INJECTION64_PATH' in os.environ:\n    "


def kernel_source(cost: float, launched: str, more: str = "") -> str:
    return f"COST = {cost}\nLAUNCHED = {launched!r}\n\ndef err(m):\n    return 0\n\n{more}"
