"""Predict analytically how long a target takes on a card, which need not be present.

A call launches kernels. Each takes its launch time plus the cube root of the sum of the cubes of
the terms that may bound it (`harness.roofline.cost_terms`): the terms overlap, though not
perfectly, and none can be beaten. A prediction is never below the physical floor of `ceilings`.

Against 41 latencies of softmax and matmul kernels measured on an H200 (bench/cost_model.py), the
prediction is typically off by a factor of 1.18, at most 1.88, and orders 91 % of pairs of
configurations correctly. No constant was fitted, but the term for the near cache was added after a
first look at these points (1.23 and 2.53 before), so they are no independent test. No other card
was available. Masks, redundant threads, bank conflicts and uneven programs are in no term: the
order is more reliable than a latency, and a measurement more than both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.compile import launch_limits
from harness.compile.triton_aot import KernelResources
from harness.devices import architectures as archs
from harness.devices.datasheets import CardModel
from harness.errors import InputError
from harness.roofline import ceilings, cost_terms, roofline
from harness.roofline.cost_terms import LaunchWork
from harness.target import ConfigClass, Target

SHARPNESS = 3.0


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
    arch = archs.find(card.arch)
    launches = list(_launches(of_class))
    if arch is None or not launches:
        return None
    work = _work_of(target, config_class, card, len(launches))
    parts: dict[str, float] = {}
    total = 0.0
    for configs in launches:
        launchable = [kernel for kernel in configs if not launch_limits.reasons(arch, kernel)]
        if not launchable:
            return None
        best = min((cost_terms.parts(kernel, work, card, arch, cold=cold)
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
    held = sum(math.pow(value, SHARPNESS) for name, value in parts.items() if name != "launch")
    return parts["launch"] + math.pow(held, 1 / SHARPNESS)
