"""What a trial comes to."""

from __future__ import annotations

from dataclasses import dataclass

from harness.devices.device import Device
from harness.search.trials.trials import Correctness
from harness.verdict import LatencyKind


@dataclass(frozen=True, kw_only=True)
class Screened:
    """What came of one configuration; a correct one without a latency was not timed, or has a
    reason why its latency is withheld.
    """

    correctness: Correctness
    reason: str = ""
    log_ratio: float | None = None
    latency_us: float | None = None
    latency_kind: LatencyKind | None = None
    roofline_us: float | None = None
    pct_of_roofline: float | None = None


def latency_kind(device: Device, language: str) -> LatencyKind | None:
    """Return what a latency from this device would be; None where nothing can be timed."""
    if device.kind != "cpu":
        return "measured-gpu"
    return None if language == "triton" else "measured-cpu"


class Infeasible(Exception):
    """A trial that the device cannot launch."""
