"""Check and time layernorm.so, and write bench.csv: `python bench.py [--quick]`."""

import csv
import ctypes
import math
import random
import sys
import time

SHAPES = [(64, 64), (256, 64), (64, 256), (16, 1024), (61, 509)]
QUICK = [(256, 64), (16, 1024)]
BUDGET_S = 0.01  # of one number
EPS = 1e-5

library = ctypes.CDLL("./layernorm.so")
Size = ctypes.c_int64


def expected(x, dy):
    """Compute one row in plain Python floats."""
    mean = math.fsum(x) / len(x)
    scale = 1 / math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + EPS)
    hat = [(v - mean) * scale for v in x]
    of_dy = math.fsum(dy) / len(x)
    of_both = math.fsum(g * h for g, h in zip(dy, hat)) / len(x)
    return hat, [(g - of_dy - h * of_both) * scale for g, h in zip(dy, hat)]


def microseconds(call):
    call()
    times, end = [], time.perf_counter() + BUDGET_S
    while time.perf_counter() < end or len(times) < 5:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1e6


def measured(m, n):
    random.seed(m * n)
    numbers = [random.gauss(0.5, 2) for _ in range(2 * m * n)]
    buffer = ctypes.c_float * (m * n)
    x, dy, y, dx = buffer(*numbers[:m * n]), buffer(*numbers[m * n:]), buffer(), buffer()
    forward = lambda: library.forward(x, y, Size(m), Size(n))
    backward = lambda: library.backward(x, dy, dx, Size(m), Size(n))
    forward(), backward()
    right = all(
        math.isclose(got, want, rel_tol=1e-4, abs_tol=1e-4)
        for row in {0, m // 2, m - 1} for part in [slice(row * n, row * n + n)]
        for mine, theirs in zip((y[part], dx[part]), expected(x[part], dy[part]))
        for got, want in zip(mine, theirs))
    return {"m": m, "n": n, "dtype": "float32", "check": "PASS" if right else "FAIL",
            "fwd_us": f"{microseconds(forward):.4f}", "bwd_us": f"{microseconds(backward):.4f}"}


rows = [measured(m, n) for m, n in (QUICK if "--quick" in sys.argv[1:] else SHAPES)]
with open("bench.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
