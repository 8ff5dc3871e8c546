"""A worker on a real card is stopped for measurements, which wait until its kernels have ended."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from engine.manifest.pool_schema import CliSpec
from engine.workers.cli import CliWorker
from harness.devices import inventory
from harness.devices.monitoring import tenants
from harness.isolation import device_lock
from tests.engine.workers.test_cli_devices import TASK, bench_on, states
from tests.support.engines import campaigns

pytestmark = pytest.mark.gpu
CYCLES = 3_500_000
"""About 2 ms of a card; a thousand such kernels can be launched before the host waits."""
LAUNCHES = f"""\
import os, pathlib, torch
pathlib.Path("card").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
n = 0
while not os.path.exists("enough"):
    torch.cuda._sleep({CYCLES})
    n += 1
    pathlib.Path("count").write_text(str(n))
"""


PROBE = f"""\
import statistics, sys, torch
torch.cuda._sleep(1)
print("ready", flush=True)
for _ in sys.stdin:
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        begin.record()
        torch.cuda._sleep({CYCLES})
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    print(statistics.median(times), flush=True)
"""
"""For each input line, prints the median time in ms of five kernels of CYCLES cycles."""


@contextmanager
def probe() -> Iterator[Callable[[], float]]:
    """Start a process with a context on the card; yield a function that times a kernel in ms."""
    with subprocess.Popen([sys.executable, "-c", PROBE], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        stdout.readline()

        def kernel_ms() -> float:
            stdin.write("now\n")
            stdin.flush()
            return float(stdout.readline())

        yield kernel_ms
        stdin.close()


def test_measurement_starts_when_a_stopped_worker_has_left_the_card_idle(tmp_path: Path) -> None:
    device = next(card for card in inventory.inventory()
                  if card.kind != "cpu" and not card.unusable)
    (tmp_path / "launches.py").write_text(LAUNCHES)
    bench = bench_on(tmp_path, device)
    counter = Path(bench.worktree) / "count"
    worker = CliWorker([CliSpec(name="agent", gpu=True, command=(
        f"test -s {{prompt}} && {sys.executable} {tmp_path}/launches.py"))])
    thread = threading.Thread(target=worker.work, args=(TASK, bench, lambda *_: None,
                                                        threading.Event()))
    thread.start()
    campaigns.until(lambda: counter.exists() and int(counter.read_text() or 0) > 1500)
    assert (Path(bench.worktree) / "card").read_text() == device.uuid
    assert tenants.is_in_use(device.lock_name)
    with probe() as kernel_ms:
        began = time.monotonic()
        with device_lock.acquire(device.lock_name, timeout_s=60,
                                 is_idle=partial(inventory.is_idle, device)):
            waited_s = time.monotonic() - began
            assert states("launches.py") == {"T"}
            first_ms = kernel_ms()
            time.sleep(1.0)
            quiet_ms = kernel_ms()
    print(f"waited {waited_s:.2f} s for the card; a kernel then took {first_ms:.3f} ms, "
          f"a second later {quiet_ms:.3f} ms")
    (Path(bench.worktree) / "enough").touch()
    thread.join(60)
    assert not thread.is_alive() and not tenants.is_in_use(device.lock_name)
    assert first_ms < 1.3 * quiet_ms
