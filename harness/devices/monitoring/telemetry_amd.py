"""Telemetry samples of an AMD card through its vendor's tools, each run of which takes a while.

A sample has processes, temperature and power. It has no clocks, since the tools read those between
blocks, and no throttling: amd-smi also calls a card throttled that is at its power limit, the
normal state under a large kernel.
"""

from __future__ import annotations

import time

from harness.devices import amd
from harness.devices.device import Device
from harness.devices.monitoring.telemetry import Sample
from harness.errors import EnvironmentFault


class SmiSource:
    """Reads one card through rocm-smi, amd-smi or both."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def sample(self) -> Sample:
        """Read the card, which takes most of a second. Raises EnvironmentFault."""
        at_ns = time.perf_counter_ns()
        [state] = amd.states([self._device])
        if state.problem:
            raise EnvironmentFault(state.problem, where=self._device.id)
        temperature_c = state.temperature_c
        return Sample(
            at_ns=at_ns, temperature_c=None if temperature_c is None else round(temperature_c),
            power_w=state.power_w, pids=None if state.processes is None else
            tuple(process.pid for process in state.processes))
