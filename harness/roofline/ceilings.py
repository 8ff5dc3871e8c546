"""A device's highest rates, and the physical floor that follows from them.

The floor is a guard against measurements that cannot be true: it must hold on a quieter day and for
data that stayed in a cache. What a kernel can be expected to reach is in `roofline`. The CPU's
ceilings are measured once, with all cores together, and cached: the best read, copy or write rate
at each working-set size. A card's are its published peaks.
"""

from __future__ import annotations

import hashlib
import math
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import harness
from harness.compile.c_compiler import BuildError, cache_directory, compiler, run_compiler
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.devices.device import Device
from harness.errors import EnvironmentFault
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from harness.tasks.target import ConfigClass, Target

SOURCE = Path(harness.__file__).parent / "child" / "measure_peaks.c"
CEILING_LIMITS = Limits(wall_s=60.0)
HEADROOM = 1.1
"""A CPU's ceilings are the best measured rates times this: floors must hold on a quieter day."""

HALF = 2.0**-11
"""float16's rounding error: a float32 task that tolerates as much may be computed in float16."""


@dataclass(frozen=True)
class Level:
    """The bandwidth of a working set of up to `bytes`, for all cores together."""

    bytes: float
    gb_per_s: float


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """A device's highest measured or published rates, the nearest cache first.

    `kept_bytes` is how much the last cache may keep from one call to the next, so that only the
    rest must come from memory. If 0, the rate is that of the best level that may hold the data.
    """

    gflops: float
    levels: tuple[Level, ...]
    copy_gb_per_s: float
    kept_bytes: float = 0.0

    def floor_us(self, flops: float, moved: float) -> float:
        """Return the time (us) below which this work cannot be done: `moved` is in bytes."""
        near, memory = self.levels[0].gb_per_s, self.levels[-1].gb_per_s
        if self.kept_bytes:
            moving = max(moved / near, max(0.0, moved - self.kept_bytes) / memory)
        else:  # at the rate of the fastest level that may hold the data
            fitting = [level.gb_per_s for level in self.levels if level.bytes >= moved / 2]
            moving = moved / max(fitting, default=memory)
        return max(moving, flops / self.gflops) / 1e3


def floor_us(limits: Ceilings, target: Target, config_class: ConfigClass) -> float:
    """Return the physical floor (us) of one call of a class."""
    return limits.floor_us(*target.work(config_class))


def of_device(device: Device, target: Target, scratch: Path) -> Ceilings | None:
    """Return a device's ceilings, None for an unknown card. Raises EnvironmentFault as `of_cpu`."""
    return of_cpu(device.name, scratch) if device.kind == "cpu" else of_gpu(device, target)


def of_gpu(device: Device, target: Target) -> Ceilings | None:
    """Return a card's published ceilings for the target's dtypes, None for an unknown card."""
    card = datasheets.find(device.name)
    if card is None:
        return None
    return of_card(card, target, count=len(device.cards))


def of_card(card: CardModel, target: Target, *, count: int = 1) -> Ceilings:
    """Return the published ceilings of `count` cards, which need not be present."""
    tolerance = max((target.declared_tolerance(each) or 0.0 for each in target.classes),
                    default=0.0)
    peak = card.peak(frozenset(arg.dtype for arg in target.args if arg.kind != "scalar"),
                     loose=target.precision is not None or tolerance >= HALF)
    kept, memory = card.cache_bytes * count, card.gb_per_s * count
    levels = (Level(kept, card.cache_gb_per_s * count), Level(math.inf, memory))
    return Ceilings(gflops=math.inf if peak is None else peak * 1e3 * count, levels=levels,
                    copy_gb_per_s=memory, kept_bytes=kept)


def of_cpu(name: str, scratch: Path) -> Ceilings:
    """Return this CPU's ceilings, cached or measured in two seconds. Raises EnvironmentFault."""
    cores = len(os.sched_getaffinity(0))
    key = hashlib.sha256(f"{name} {cores}".encode() + SOURCE.read_bytes()).hexdigest()[:16]
    path = cache_directory() / f"ceilings-{key}.json"
    with suppress(OSError, ConvertError):  # not measured yet, or a file of another version
        return from_json(path.read_bytes(), Ceilings)
    rates = _measure_cpu(cores, scratch)
    ceilings = replace(rates, gflops=rates.gflops * HEADROOM, levels=tuple(
        Level(level.bytes, level.gb_per_s * HEADROOM) for level in rates.levels))
    with suppress(OSError):  # without the file, the next evaluation measures again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(ceilings))
    return ceilings


def _measure_cpu(cores: int, scratch: Path) -> Ceilings:
    scratch.mkdir(parents=True, exist_ok=True)
    program = scratch / "ceilings"
    env = guard.clean_env(home=scratch)
    confine = Confine(writable=(str(scratch),), cards=False)
    try:
        run_compiler([compiler(), "-O3", "-march=native", "-pthread", "-o", str(program),
                      str(SOURCE)], scratch, scratch, name="ceilings")
    except BuildError as error:
        raise EnvironmentFault("the compiler cannot build a program", fix=error.what) from None
    run = guard.run([str(program), str(cores)], cwd=scratch, env=env, limits=CEILING_LIMITS,
                    confine=confine)
    if not run.ok:
        raise EnvironmentFault(f"measuring this CPU's ceilings {run.describe(CEILING_LIMITS)}")
    return from_json(run.stdout, Ceilings)
