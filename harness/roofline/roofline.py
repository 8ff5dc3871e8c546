"""The physical floor: the least time that a class's work can take on this device.

bound = max(bytes / bandwidth, operations / peak); pct_of_roofline = 100 · bound / latency.
The CPU's ceilings are measured on this machine, once, with kernels of ours, all cores together,
and cached: the best read, copy or write rate at each working-set size, so that data in a cache is
judged by that cache's rate. A ceiling is a best case; the bound is a floor that holds.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import harness
from harness.compile.c_compiler import compiler
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.devices.device import Device
from harness.errors import EnvironmentFault
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.isolation import guard
from harness.isolation.guard import Confine, Limits
from harness.target import ConfigClass, Target

SOURCE = Path(harness.__file__).parent / "child" / "measure_peaks.c"
CEILING_LIMITS = Limits(wall_s=60.0)
HEADROOM = 1.1
"""Ceilings are the best rates seen, and a tenth: a floor must hold on a quieter day too."""

HALF = 2.0**-11
"""The rounding of float16: a task that allows more lets float32 be computed in it."""


@dataclass(frozen=True)
class Level:
    """The best bandwidth seen with a working set of this size, all cores together."""

    bytes: float
    gb_per_s: float


@dataclass(frozen=True)
class _Measured:
    gflops: float
    copy_gb_per_s: float
    levels: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """A device's measured or published peaks.

    `kept_bytes` is what the last level before the memory may keep from one call to the next, so
    that only the rest must come from there (0: the levels say it all).
    """

    device: str
    gflops: float
    levels: tuple[Level, ...]
    copy_gb_per_s: float
    source: str
    kept_bytes: float = 0.0

    def bandwidth(self, working_set: float) -> float:
        """Return the best bandwidth (GB/s) of any level that a working set may live in."""
        fitting = [level.gb_per_s for level in self.levels if level.bytes >= working_set / 2]
        return max(fitting, default=self.levels[-1].gb_per_s)

    def bound_us(self, flops: float, moved: float) -> float:
        """Return the least time in microseconds."""
        return max(self._moving_us(moved), flops / self.gflops / 1e3)

    def _moving_us(self, moved: float) -> float:
        if not self.kept_bytes:
            return moved / self.bandwidth(moved) / 1e3
        far = max(0.0, moved - self.kept_bytes)
        return max(moved / self.levels[0].gb_per_s, far / self.levels[-1].gb_per_s) / 1e3


def pct_of_roofline(bound_us: float, latency_us: float) -> float:
    return min(100.0, 100.0 * bound_us / latency_us)


def bound_us(ceilings: Ceilings, target: Target, config_class: ConfigClass) -> float:
    flops, moved = target.work(config_class)
    return ceilings.bound_us(flops, moved)


def of_gpu(device: Device, target: Target) -> Ceilings | None:
    """Return a card's published ceilings for the target's dtypes, None for a card not known."""
    card = datasheets.find(device.name)
    if card is None:
        return None
    one, count = of_card(card, target, name=device.name), len(device.cards)
    return replace(one, gflops=one.gflops * count, copy_gb_per_s=one.copy_gb_per_s * count,
                   kept_bytes=one.kept_bytes * count, levels=tuple(
                       Level(level.bytes * count, level.gb_per_s * count) for level in one.levels))


def of_card(card: CardModel, target: Target, *, name: str = "") -> Ceilings:
    """Return a card's published ceilings for the target's dtypes, whether or not it is here."""
    peak = card.peak(frozenset(arg.dtype for arg in target.args if arg.kind != "scalar"),
                     loose=target.precision is not None or _tolerance(target) >= HALF)
    kept = card.cache_bytes
    return Ceilings(device=name or card.name, gflops=math.inf if peak is None else peak * 1e3,
                    levels=(Level(kept, card.cache_gb_per_s), Level(math.inf, card.gb_per_s)),
                    copy_gb_per_s=card.gb_per_s, source=card.source, kept_bytes=kept)


def _tolerance(target: Target) -> float:
    """Return the largest error that the task itself declares as allowed."""
    return max((target.declared_tolerance(one) or 0.0 for one in target.classes), default=0.0)


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "kopt"


def measure_cpu(name: str, scratch: Path) -> Ceilings:
    """Return this CPU's ceilings, from the cache or measured now (about two seconds)."""
    cores = len(os.sched_getaffinity(0))
    key = hashlib.sha256(f"{name} {cores}".encode() + SOURCE.read_bytes()).hexdigest()[:16]
    path = cache_directory() / f"ceilings-{key}.json"
    try:
        return from_json(path.read_bytes(), Ceilings)
    except (OSError, ConvertError):
        pass  # not measured yet, or a file of another version
    scratch.mkdir(parents=True, exist_ok=True)
    program = scratch / "ceilings"
    env = guard.clean_env(home=scratch)
    confine = Confine(writable=(str(scratch),), cards=False)
    built = guard.run([compiler(), "-O3", "-march=native", "-pthread", "-o", str(program),
                       str(SOURCE)], cwd=scratch, env=env, limits=CEILING_LIMITS, confine=confine)
    if not built.ok:
        raise EnvironmentFault("the compiler cannot build a program",
                               fix=built.stderr.decode(errors="replace")[:200])
    ran = guard.run([str(program), str(cores)], cwd=scratch, env=env, limits=CEILING_LIMITS,
                    confine=confine)
    if not ran.ok:
        raise EnvironmentFault(f"measuring this CPU's ceilings {ran.describe(CEILING_LIMITS)}")
    seen = from_json(ran.stdout, _Measured)
    ceilings = Ceilings(device=name, source="measured", copy_gb_per_s=seen.copy_gb_per_s,
                        gflops=seen.gflops * HEADROOM,
                        levels=tuple(Level(size, rate * HEADROOM) for size, rate in seen.levels))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(ceilings))
    except OSError:
        pass  # a cache that cannot be written only costs the next measurement
    return ceilings
