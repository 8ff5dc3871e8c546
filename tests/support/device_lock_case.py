"""A program that measures under a device lock."""

from __future__ import annotations

MEASURE = """
import sys, time
from pathlib import Path
from harness.isolation import device_lock as lock
log = Path(sys.argv[1])
log.with_name(sys.argv[2]).touch()
while not (log.with_name("a").exists() and log.with_name("b").exists()):
    time.sleep(0.001)
for _ in range(6):
    with lock.acquire("cpu"):
        with log.open("a") as f:
            f.write(f"{sys.argv[2]} {time.monotonic_ns()} ")
            time.sleep(0.05)
            f.write(f"{time.monotonic_ns()}\\n")
    time.sleep(0.01)
"""
