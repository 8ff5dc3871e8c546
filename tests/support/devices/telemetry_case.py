"""Recorded telemetry of H200 cards, and a watch that only timed blocks trigger."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness.devices.monitoring import telemetry
from harness.devices.monitoring.telemetry import (
    Sample,
    TelemetryWatch,
)
from tests.support.paths import DATA
from tests.support.programs.processes import until

H200_READINGS = DATA / "health" / "h200_readings.json"


def readings(card: int, *, from_: tuple[str, ...] = ("nvml", "smi-xml", "smi-csv")) -> list[Sample]:
    """Return recorded readings of an H200 as samples at 0, 1, 2 ns."""
    chosen = [reading for reading in json.loads(H200_READINGS.read_text())
              if reading["card"] == card and reading["from"] in from_]
    return [Sample(at_ns=at, sm_mhz=reading["sm_mhz"], memory_mhz=reading["memory_mhz"],
                   temperature_c=reading["temperature_c"], power_w=reading["power_mw"] / 1000,
                   reasons=reading["reasons"], pids=tuple(reading["pids"]))
            for at, reading in enumerate(chosen)]


@contextmanager
def watch(source: telemetry.SampleSource, *, interval_s: float = 60.0) -> Iterator[TelemetryWatch]:
    """Yield a watch after its first sample or failure; later, only blocks trigger samples."""
    with TelemetryWatch(source, runners=1, interval_s=interval_s) as watching:
        until(lambda: watching._tried_ns or isinstance(source, Hanging))
        yield watching


def block() -> tuple[int, int]:
    """Return the window of a block that has ended."""
    begin = time.perf_counter_ns()
    return begin, max(time.perf_counter_ns(), begin + 1)


class Hanging:
    """Hangs until its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def sample(self) -> Sample:
        self.gate.wait(60)
        return replace(readings(1)[0], at_ns=time.perf_counter_ns())
