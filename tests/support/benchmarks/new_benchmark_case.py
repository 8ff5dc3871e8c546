"""The files of a project with its own benchmark, as `kopt new` finds them."""

from __future__ import annotations

KERNEL = "def decode(block_size, mtp, context):\n    # kopt: knob TILE in [16, 32]\n" \
         "    return context * (3 if block_size == 1024 and mtp == 1 else 1) * 1e-3\n"


BENCH = '''\
"""Writes pa.csv."""
import csv
import random
from kernels.pa_ps import decode

rows = []
for block_size in (16, 1024):
    for mtp in (1, 2):
        for context in (512, 1024, 4096, 16384):
            us = decode(block_size, mtp, context) * random.uniform(0.99, 1.01)
            rows.append({"block_size": block_size, "mtp": mtp, "context": context, "dtype": "fp8",
                         "err_torch": 0, "us_torch": f"{context * 2e-3:.4f}", "err_pa_ps": 0,
                         "us_pa_ps": f"{us:.5f}"})
with open("pa.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
'''


FILES = {"tests/bench_pa.py": BENCH, "tests/kernels/pa_ps.py": KERNEL,
         "tests/kernels/__init__.py": "", "notes.py": "print('no benchmark')\n",
         "tests/test_pa.py": "import sys\nsys.path.insert(0, 'tests')\nfrom kernels import pa_ps\n"
                             "def test_decode():\n    assert pa_ps.decode(16, 1, 1000) == 1\n"}
