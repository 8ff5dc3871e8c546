"""Samples of an AMD card for `harness.devices.monitoring.telemetry`, by its vendor's tools: each
takes a while.

They tell who is there, heat and power. Clocks are those between blocks, and a card that amd-smi
calls throttled may be at its power limit, which is a large kernel's normal state: neither is told.
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
        """Read the card, in a good part of a second. Raises EnvironmentFault."""
        at_ns = time.perf_counter_ns()
        [state] = amd.states([self._device])
        if state.problem:
            raise EnvironmentFault(state.problem, where=self._device.id)
        heat = state.temperature_c
        return Sample(
            at_ns=at_ns, temperature_c=None if heat is None else round(heat), power_w=state.power_w,
            pids=None if state.processes is None else tuple(one.pid for one in state.processes))
