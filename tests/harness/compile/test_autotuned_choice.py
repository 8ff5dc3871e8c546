"""A kernel's autotuner chooses once: later processes get its choice from the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.compile import compiler_cache

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


x = torch.ones(1000, device="cuda")
double[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, 1000)
print("tuned" if hasattr(double, "bench_time") else "chosen before", double.best_config)
"""


@pytest.mark.gpu
def test_second_process_takes_the_choice_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(KERNEL)
    homes = [tmp_path / "first", tmp_path / "second"]

    def run(home: Path) -> str:
        done = subprocess.run([sys.executable, "double.py"], cwd=tmp_path, capture_output=True,
                              text=True, check=True,
                              env=compiler_cache.private(os.environ, home))
        return done.stdout

    first = run(homes[0])
    assert first.startswith("tuned")
    caches = [home.joinpath(*compiler_cache.TRITON) for home in homes]
    assert compiler_cache.adopt(caches[0], homes[1], compiler_cache.TRITON) > 0
    assert run(homes[1]) == first.replace("tuned", "chosen before")
