"""Predict analytically how long a target takes on a card, which need not be present.

A call launches kernels. Each takes its launch time plus the cube root of the sum of the cubes of
the terms that may bound it: they overlap, though not perfectly, and the longest is a lower bound.

- memory: the bytes that must move, at the share of the published bandwidth that a copy reaches;
- cache: the bytes that programs load, at a share of the last-level cache's published rate. Matrix
  products load what their tiles need for the task's operations; other kernels load every input once
  in each loop that loads, from the multiprocessor's own cache where the loop before left it there;
- spills: the spilled bytes of each iteration of the longest loop, at the last-level cache's
  published rate;
- arithmetic: the task's operations at the rate of the instructions in the code (warp-group,
  warp-wide or plain), at a vector unit's rate without matrix instructions. Only multiprocessors
  with a program count, and all of them wait for the fullest one;
- issue: the instructions of all warps at the multiprocessors' issue rate;
- latency: a program waits for its loads in each iteration of a loop, fewer times where loads are
  wider or pipelined. Occupancy says how many programs run at a time; the others follow.

A prediction is never below the physical floor of `ceilings`.

Against 41 latencies of softmax and matmul kernels measured on an H200 (bench/cost_model.py), the
prediction is typically off by a factor of 1.18, at most 1.88, and orders 91 % of pairs of
configurations correctly. No constant was fitted, but the term for the near cache was added after a
first look at these points (1.23 and 2.53 before), so they are not an independent test. No
other card was available. No term covers masks, redundant threads, bank conflicts, uneven programs:
the order is more reliable than a latency, and a measurement more than both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.compile import kernel_resources
from harness.compile.kernel_resources import KernelResources, Section
from harness.devices import datasheets
from harness.devices.datasheets import Arch, CardModel
from harness.errors import InputError
from harness.roofline import ceilings, roofline
from harness.tasks.target import ConfigClass, Target

SHARPNESS = 3.0
LAUNCH_US = 2.0
"""A launch of the shortest kernel in a graph: 2.1 us measured on an H200 (bench/results)."""
COPY = 0.88
"""A device copy on an H200 reaches 4,227 of 4,800 GB/s."""
CACHE = 0.37
"""An A100's last-level cache delivers 5,120 of 108 x 128 bytes a clock (its whitepaper)."""
MEMORY_NS, CACHE_NS, NEAR_NS = datasheets.LOAD_NS, 300.0, 40.0
"""Load latencies on a busy card; on an idle one: 500 ns, 200 ns, near cache 35 cycles."""
CYCLES = 2.0
"""Cycles between a warp's instructions: a dependent one waits four cycles, some are independent."""
ISSUE = 0.6
"""The share of issue slots that straight code fills."""
HIDING = 8
"""Warps that keep a multiprocessor's four partitions busy: two each; warp groups need four."""
MATRIX = {"wgmma": 0.75, "tcgen05": 0.75, "mma": 0.8, "mfma": 0.5, "wmma": 0.5, "": 0.5}
"""Share of the peak that products reach: cuBLAS takes 185 us for a bf16 4096-cube on an H200. The
other values are guesses from what libraries reach."""
OLD_MATRIX = {"sm_90": 0.5, "sm_100": 0.25}
"""Share of mma.sync where the peak is for newer instructions: at best 62 % on Hopper (Luo et al.,
"Benchmarking and dissecting the Nvidia Hopper GPU architecture", 2024); Blackwell's is a guess."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted latency of one class, and the term that bounds it most.

    Its `latency_kind` cannot be set: a prediction is never called a measurement.
    """

    config_class: str
    card: str
    latency_us: float
    floor_us: float
    roofline_us: float
    limiter: str
    latency_kind: Literal["predicted"] = field(default="predicted", init=False)


@dataclass(frozen=True, kw_only=True)
class LaunchWork:
    """The work of one launch: operations, bytes, and the peaks (TFLOP/s) for its dtypes."""

    flops: float
    reads: float
    writes: float
    matrix_tflops: float
    vector_tflops: float


def predict(target: Target, config_class: ConfigClass, resources: Sequence[KernelResources],
            card: CardModel, *, cold: bool = True) -> Prediction | None:
    """Return the predicted latency of a call, None where a launch is unknown or impossible.

    `resources` come from `triton_aot.inspect` for the card's architecture; those of other classes
    are ignored. The best config of an autotuned kernel counts. Several launches share the work
    evenly. `cold`: the call finds nothing in the cache. Raises InputError for another architecture.
    """
    of_class = [kernel for kernel in resources
                if kernel.config_class == config_class.name and not kernel.caught]
    if wrong := {kernel.arch for kernel in of_class} - {card.arch}:
        raise InputError(f"compiled for {', '.join(sorted(wrong))}, {card.name} is {card.arch}")
    arch = datasheets.find_arch(card.arch)
    launches = list(_launches(of_class))
    if arch is None or not launches:
        return None
    work = _work_of(target, config_class, card, len(launches))
    parts: dict[str, float] = {}
    total = 0.0
    for configs in launches:
        launchable = [kernel for kernel in configs if not kernel_resources.unlaunchable(kernel)]
        if not launchable:
            return None
        best = min((_terms(kernel, work, card, arch, cold=cold)
                    for kernel in launchable), key=_total)
        for name, value in best.items():
            parts[name] = parts.get(name, 0.0) + value
        total += _total(best)
    floor = ceilings.floor_us(ceilings.of_card(card, target), target, config_class)
    return Prediction(config_class=config_class.name, card=card.name, floor_us=floor,
                      latency_us=max(total, floor), limiter=max(parts, key=lambda n: parts[n]),
                      roofline_us=roofline.of_card(card, target, cold=cold).point(
                          target, config_class).us)


def _launches(resources: Sequence[KernelResources]) -> Iterable[list[KernelResources]]:
    """Yield the configs of each launch: a repeated config belongs to the next launch."""
    group: list[KernelResources] = []
    for kernel in resources:
        if group and (kernel.kernel != group[0].kernel or not kernel.config
                      or kernel.config in {earlier.config for earlier in group}):
            yield group
            group = []
        group.append(kernel)
    if group:
        yield group


def _work_of(target: Target, config_class: ConfigClass, card: CardModel,
             launches: int) -> LaunchWork:
    flops, moved = target.work(config_class)
    tensors = [t for t in target.tensors(config_class) if t.role != "scalar"]
    reads = sum(t.nbytes for t in tensors if t.role != "output")
    writes = sum(t.nbytes for t in tensors if t.role != "input")
    share = reads / (reads + writes) if reads + writes else 1.0
    double = any(t.dtype == "float64" for t in tensors)
    return LaunchWork(flops=flops / launches, reads=moved * share / launches,
                      writes=moved * (1 - share) / launches,
                      matrix_tflops=ceilings.of_card(card, target).gflops / 1e3,
                      vector_tflops=(card.fp64 or card.fp32 / 64) if double else card.fp32)


def _total(parts: Mapping[str, float]) -> float:
    bounded = sum(math.pow(value, SHARPNESS) for name, value in parts.items() if name != "launch")
    return parts["launch"] + math.pow(bounded, 1 / SHARPNESS)


def _terms(kernel: KernelResources, work: LaunchWork, card: CardModel, arch: Arch, *,
           cold: bool) -> dict[str, float]:
    """Return every term of a launch (us); `cold`: it finds nothing in the last-level cache."""
    programs = max(1, kernel.programs or card.multiprocessors)
    warps = max(1, -(-kernel.threads // arch.warp))
    fitting = max(1, int((kernel.occupancy or 0.0) * arch.warps + 0.5) // warps)
    fullest = -(-programs // card.multiprocessors)
    full = fullest * card.multiprocessors / programs
    busy = min(1.0, min(fitting, fullest) * warps
               / (HIDING / 2 if kernel.matrix == "wgmma" else HIDING))
    counts = [_run_count(part, kernel, work, programs) for part in kernel.sections]
    instructions = sum(part.instructions * count
                       for part, count in zip(kernel.sections, counts, strict=True))
    issue_ghz = card.clock_mhz / 1e3 * ISSUE * (4 if arch.backend == "cuda" else 1)
    moved = work.reads + work.writes
    far = moved if cold or moved > card.cache_bytes else 0.0
    shared_bytes = kernel.shared_bytes if arch.backend == "cuda" else 0
    # whether the data of resident programs stay in the near cache for their next loop
    near = fitting * (work.reads / programs + shared_bytes) <= arch.near
    return {
        "launch": LAUNCH_US,
        "memory": far / (card.gb_per_s * COPY) / 1e3,
        "cache": (_loaded(kernel, work, near) + work.writes) / (card.cache_gb_per_s * CACHE) / 1e3,
        "spills": (kernel.spills or 0) * kernel.threads * programs * max(counts, default=1.0)
        / card.cache_gb_per_s / 1e3,
        "arithmetic": full * work.flops / (_tflops(kernel, work, card) * busy) / 1e6,
        "issue": full * instructions * warps * programs / card.multiprocessors / issue_ghz / 1e3,
        "latency": max(1.0, programs / (card.multiprocessors * fitting))
        * _program_ns(kernel, counts, card, MEMORY_NS if far else CACHE_NS, near) / 1e3}


def _run_count(part: Section, kernel: KernelResources, work: LaunchWork, programs: int) -> float:
    """Return how often one program runs a section, estimated from the work."""
    if part.loop and part.flops:
        return max(1.0, work.flops / (programs * part.flops))
    if part.loop and part.load_bytes and not kernel.matrix:
        return max(1.0, work.reads / (programs * kernel.threads * part.load_bytes))
    return 1.0


def _loaded(kernel: KernelResources, work: LaunchWork, near: bool) -> float:
    """Return the bytes that all programs load from beyond the near cache."""
    for part in kernel.sections:
        if part.flops and part.load_bytes:
            return max(work.reads, work.flops / part.flops * part.load_bytes * kernel.threads)
    loops = sum(part.loop and part.load_bytes > 0 for part in kernel.sections)
    return work.reads * (1 if near else max(1, loops))


def _tflops(kernel: KernelResources, work: LaunchWork, card: CardModel) -> float:
    share = OLD_MATRIX.get(card.arch, MATRIX["mma"]) if kernel.matrix == "mma" \
        else MATRIX.get(kernel.matrix, 0.5)
    return share * (work.matrix_tflops if kernel.matrix else work.vector_tflops)


def _program_ns(kernel: KernelResources, counts: list[float], card: CardModel, first_ns: float,
                near: bool) -> float:
    """Return how long one program takes alone (ns); loads of its first loop take `first_ns`."""
    total, wait_ns = 0.0, first_ns
    for part, count in zip(kernel.sections, counts, strict=True):
        step_ns = part.instructions * CYCLES * 1e3 / card.clock_mhz
        if part.flops and part.load_bytes:
            step_ns += CACHE_NS / max(1, kernel.stages - 1)
        elif part.load_bytes:
            step_ns += wait_ns
            if part.loop:
                wait_ns = NEAR_NS if near else CACHE_NS
        total += count * step_ns
    return total
