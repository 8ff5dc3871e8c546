"""The roofline: how long a call takes when its slowest resource runs at its measured rate.

For people, the planner and reports. All bytes of a call move at the measured copy rate of the level
that they come from: of memory where calls find the caches cold, else of the smallest cache that
holds the data. Operations run at the measured peak of their precision. A rate that was not measured
on this machine is the published one. The guard against impossible latencies is the lower
`ceilings.floor_us`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.devices.datasheets import CardModel
from harness.devices.device import Device
from harness.roofline import ceilings
from harness.roofline.ceilings import HEADROOM, Ceilings, Level
from harness.roofline.measured_peaks import GpuCeilings
from harness.tasks.target import ConfigClass, Target


@dataclass(frozen=True, kw_only=True)
class RooflinePoint:
    """The roofline of one class; the rate that bounds it is in GB/s or GFLOP/s."""

    us: float
    limiter: Literal["memory", "compute"]
    rate: float

    @property
    def rate_text(self) -> str:
        return f"{self.rate:.0f} {'GB/s' if self.limiter == 'memory' else 'GFLOP/s'}"


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The rates that a kernel can reach; `levels`: caches that may hold its data, then memory."""

    gflops: float
    levels: tuple[Level, ...]

    def point(self, target: Target, config_class: ConfigClass) -> RooflinePoint:
        """Return the roofline of one call of a class."""
        flops, moved = target.work(config_class)
        footprint = sum(tensor.nbytes for tensor in target.tensors(config_class)
                        if tensor.role != "scalar")
        bandwidth = max(level.gb_per_s for level in self.levels if level.bytes >= footprint)
        memory = RooflinePoint(us=moved / bandwidth / 1e3, limiter="memory", rate=bandwidth)
        compute = RooflinePoint(us=flops / self.gflops / 1e3, limiter="compute", rate=self.gflops)
        return max(memory, compute, key=lambda point: point.us)


def of_device(device: Device, target: Target, limits: Ceilings | None,
              peaks: GpuCeilings | None, *, cold: bool) -> Roofline | None:
    """Return a device's roofline from its ceilings and the peaks measured on it.

    `cold`: calls on a GPU find nothing in the cache; on a CPU they always find warm caches. None
    when neither ceilings nor peaks are known.
    """
    if device.kind == "cpu":
        return None if limits is None else of_cpu(limits)
    if peaks is None:
        return None if limits is None else _published(limits, cold=cold)
    memory = Level(math.inf, peaks.copy_gb_per_s)
    precision = peaks.precision(target)
    gflops = peaks.tflops[precision] * 1e3 if precision else \
        math.inf if limits is None else limits.gflops
    return Roofline(gflops=gflops, levels=(memory,) if cold or limits is None
                    else (*limits.levels[:-1], memory))


def of_card(card: CardModel, target: Target, *, cold: bool) -> Roofline:
    """Return the published roofline of a card, which need not be present."""
    return _published(ceilings.of_card(card, target), cold=cold)


def of_cpu(limits: Ceilings) -> Roofline:
    """Return a CPU's roofline from its ceilings, less their headroom.

    A level was measured at one size; it counts up to twice that size, which is about half of the
    way to the next level.
    """
    caches = tuple(Level(2 * level.bytes, level.gb_per_s / HEADROOM)
                   for level in limits.levels[:-1])
    return Roofline(gflops=limits.gflops / HEADROOM,
                    levels=(*caches, Level(math.inf, limits.copy_gb_per_s)))


def percent(roofline_us: float, latency_us: float) -> float:
    """Return the share of the roofline that a latency reaches, in percent, at most 100."""
    return min(100.0, 100.0 * roofline_us / latency_us)


def _published(limits: Ceilings, *, cold: bool) -> Roofline:
    return Roofline(gflops=limits.gflops, levels=limits.levels[-1:] if cold else limits.levels)
