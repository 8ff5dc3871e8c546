"""Samples of an AMD card for `harness.health`, by its vendor's tools: each takes a while."""

from __future__ import annotations

import time

from harness import device_amd
from harness.device import Device
from harness.errors import EnvironmentFault
from harness.health import THROTTLED, Sample


class SmiSource:
    """Reads one card through rocm-smi or amd-smi, whichever tells more."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def sample(self) -> Sample:
        """Read the card, in a good part of a second. Raises EnvironmentFault."""
        at_ns = time.perf_counter_ns()
        [state] = device_amd.states([self._device])
        if state.problem:
            raise EnvironmentFault(state.problem, where=self._device.id)
        return Sample(
            at_ns=at_ns, sm_mhz=_whole(state.clock_mhz), memory_mhz=_whole(state.memory_clock_mhz),
            temperature_c=_whole(state.temperature_c), power_w=state.power_w,
            reasons=THROTTLED if state.throttle else 0,
            pids=None if state.processes is None else tuple(one.pid for one in state.processes))


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
