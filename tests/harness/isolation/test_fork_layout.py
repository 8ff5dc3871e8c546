"""Forks have memory layouts of their own, whose effect on times process pairs average out."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.paths import ROOT

LOAD_IN_FORKS = """
import mmap, os, sys
from harness.child.supervise.exec_child import scatter
kept = [mmap.mmap(-1, mmap.PAGESIZE) for _ in range(1000)]
gap, below = mmap.mmap(-1, 32 * mmap.PAGESIZE), mmap.mmap(-1, 64 * mmap.PAGESIZE)
gap.close()
for _ in range(6):
    if not os.fork():
        scatter()
        import _lsprof
        print(next(line for line in open("/proc/self/maps") if "_lsprof" in line).split("-")[0])
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def test_forks_load_a_library_at_different_addresses() -> None:
    """A gap in the zygote's memory would give all of them the same one."""
    ended = subprocess.run([sys.executable, "-c", LOAD_IN_FORKS], cwd=ROOT, check=True, text=True,
                           capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    addresses = ended.stdout.split()
    assert len(addresses) == 6 and len(set(addresses)) > 2, addresses
