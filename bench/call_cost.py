"""Measures what the runner's loop adds to a call: an empty C kernel, and an empty Python one.

    python bench/call_cost.py

Prints the median and the least nanoseconds of a call over 200 blocks of 99 calls. Both kernels have
two tensors and one scalar.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from harness.child.memory.host_memory import HostMemory
from harness.child.run import c_kernel
from harness.child.run.compiled_loop import CompiledLoop
from harness.compile import c_compiler
from harness.tasks.target import Arg, ConfigClass, Target

C = "#include <stdint.h>\nvoid empty(const float *x, float *out, int64_t n) { }\n"
PYTHON = "def empty(x, out, n):\n    pass\n"
ARGS = (Arg(name="x", dtype="float32", shape=(512,)),
        Arg(name="out", dtype="float32", shape=(512,), role="output"),
        Arg(name="n", dtype="int64", value=512))
SLOTS, SLOT_BYTES, BLOCKS = 100, 8192, 200


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for language in ("c", "python"):
            ns = blocks(language, folder)
            print(f"{language:6}  median {median(ns):6.1f} ns  least {min(ns):6.1f} ns a call")


def blocks(language: Any, folder: Path) -> list[float]:
    target = Target(op="empty", language=language, source=f"k.{language}", entry="empty", args=ARGS,
                    reference="r.py:r", classes=(ConfigClass(name="one", shape={}),))
    owner, channel = socket.socketpair()
    loop = CompiledLoop(str(c_compiler.library(target, folder)), channel.fileno(), [], gpu=False)
    memory = HostMemory.create(SLOTS * SLOT_BYTES)
    tensors = [{"role": arg.kind, "name": arg.name, "dtype": arg.dtype, "stored": arg.dtype,
                "shape": [512], "value": arg.value, "weight": False, "offset": 4096 * index,
                "nbytes": 2048} for index, arg in enumerate(ARGS)]
    job = {"memory": {"kind": "host", "nbytes": memory.nbytes}, "tensors": tensors, "slots": SLOTS,
           "slot_bytes": SLOT_BYTES, "call": True, "returned": [], "one_weight": False}
    clock: Any = c_kernel
    if language == "c":
        (folder / "k.c").write_text(C)
        digest = c_compiler.build(target, folder, folder / "k.so")
        kernel: Any = c_kernel.CKernel({"artifact": str(folder / "k.so"), "sha256": digest,
                                      "entry": "empty"}, loop)
    else:
        from harness.child.run import load_python, time_python

        clock = time_python
        (folder / "k.py").write_text(PYTHON)
        kernel = load_python.PythonKernel({
            "device": "cpu", "interpret": False, "returns": False, "root": str(folder),
            "artifact": str(folder / "k.py"), "entry": "empty",
            "sha256": hashlib.sha256(PYTHON.encode()).hexdigest()}, loop)
    case = clock.prepare(kernel, job, [os.dup(memory.fd)])
    times = []
    for _ in range(BLOCKS):
        owner.sendall(secrets.token_bytes(8))
        clock.block(case, {"order": list(range(SLOTS - 1)), "mode": "wall", "fetch": False,
                           "stop": False})
        times.append(json.loads(owner.recv(1 << 12).splitlines()[1])["ns"] / (SLOTS - 1))
    return times


if __name__ == "__main__":
    main()
