"""A project in C with its own benchmark, whose check compares with a reference or is constant."""

from __future__ import annotations

from typing import Any

from tests.support.benchmarks import benchmark_case

KERNEL = """\
double COST = 100.0;
void scale(const double *x, double *out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = 2 * x[i];
}
"""
"""The benchmark reports COST, with some noise."""
PARTIAL = KERNEL.replace("100.0", "50.0").replace("i < n", "i < n / 2")
"""Computes half of the result in half of the time."""
BENCH = """\
import csv, ctypes, os
lib = ctypes.CDLL("./lib.so")
cost = ctypes.c_double.in_dll(lib, "COST").value
with open("bench.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["n", "err", "fwd_us"])
    for n in (8, 16, 32):
        x, out = (ctypes.c_double * n)(*range(1, n + 1)), (ctypes.c_double * n)()
        lib.scale(x, out, n)
        wrong = sum(b != 2 * a for a, b in zip(x, out))
        noise = 0.999 + 0.002 * int.from_bytes(os.urandom(4), "little") / 2**32
        table.writerow([n, {check}, f"{cost * n * noise:.4f}"])
"""
BUILD = "gcc -O1 -shared -fPIC -o lib.so kernel.c"
HONEST = {"kernel.c": KERNEL, "bench.py": BENCH.replace("{check}", "wrong")}
BLIND = {"kernel.c": KERNEL, "bench.py": BENCH.replace("{check}", "0")}
MANIFEST: dict[str, Any] = {
    **benchmark_case.MANIFEST, "edit": ["kernel.c"], "build_command": BUILD,
    "target": {"kind": "command", "csv": "bench.csv", "check": "err == 0",
               "metrics": ["fwd_us"]}}
