"""How long a target should take on a card that may not be here: an analytic prediction.

A call launches kernels; each takes, besides its launch, the cube root of the sum of the cubes of
what could hold it up (`harness.roofline.cost_terms`): these overlap, though not perfectly, and
none can be beaten. Never below the physical floor of `roofline`.

Against 41 latencies of softmax and matmul kernels measured on an H200 (bench/cost_model.py):
typically off by a factor of 1.18, at most 1.88, and 91 % of pairs of configurations in the right
order. No constant was fitted, but the term for the near cache was added after a first look at these
points (1.23 and 2.53 before), so that they are no independent test. No other card was at hand. A
config's masks, redundant threads, bank conflicts and uneven programs are in no term: trust the
order more than a latency, and a measurement more than both.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from harness.compile import launch_limits
from harness.compile.triton_aot import KernelResources
from harness.devices import architectures as archs
from harness.devices.datasheets import CardModel
from harness.errors import InputError
from harness.roofline import ceilings, cost_terms, roofline
from harness.roofline.cost_terms import LaunchWork
from harness.target import ConfigClass, Target
from harness.timing import stats

SHARPNESS = 3.0

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted latency of one class, and what holds it up most.

    Its kind cannot be set: a prediction is never called a measurement.
    """

    config_class: str
    card: str
    latency_us: float
    floor_us: float
    roofline_us: float
    limiter: str
    latency_kind: Literal["predicted"] = field(default="predicted", init=False)


@dataclass(frozen=True, kw_only=True)
class Ranked(Generic[K]):
    """One configuration among others: the weighted geometric mean over classes, or why not."""

    key: K
    latency_us: float | None
    predictions: tuple[Prediction, ...] = ()
    reasons: tuple[str, ...] = ()
    latency_kind: Literal["predicted"] = field(default="predicted", init=False)


def predict(target: Target, config_class: ConfigClass, resources: Sequence[KernelResources],
            card: CardModel, *, cold: bool = True) -> Prediction | None:
    """Return the predicted latency of a call, None where a launch is not known or not possible.

    `resources` are of `aot.inspect` for the card's architecture; those of other classes are left
    out. Of an autotuned kernel the best config counts. Several launches share the work evenly.
    `cold` is a call that finds nothing in the cache. Raises InputError for another architecture.
    """
    mine = [one for one in resources
            if one.config_class == config_class.name and not one.caught]
    if wrong := {one.arch for one in mine} - {card.arch}:
        raise InputError(f"compiled for {', '.join(sorted(wrong))}, {card.name} is {card.arch}")
    arch = archs.find(card.arch)
    launches = list(_launches(mine))
    if arch is None or not launches:
        return None
    work = _work_of(target, config_class, card, len(launches))
    parts: dict[str, float] = {}
    total = 0.0
    for configs in launches:
        able = [one for one in configs if not launch_limits.reasons(arch, one)]
        if not able:
            return None
        best = min((cost_terms.parts(one, work, card, arch, cold=cold) for one in able), key=_total)
        for name, value in best.items():
            parts[name] = parts.get(name, 0.0) + value
        total += _total(best)
    floor = ceilings.floor_us(ceilings.of_card(card, target), target, config_class)
    return Prediction(config_class=config_class.name, card=card.name, floor_us=floor,
                      latency_us=max(total, floor), limiter=max(parts, key=lambda n: parts[n]),
                      roofline_us=roofline.of_card(card, target, cold=cold).point(
                          target, config_class).us)


def rank(target: Target, candidates: Mapping[K, Sequence[KernelResources]], card: CardModel, *,
         cold: bool = True) -> tuple[Ranked[K], ...]:
    """Return candidates in order of their predicted latency, those that cannot be launched last.

    One whose resources lack a class has no latency and stands before those that cannot run.
    """
    found = [_ranked(key, target, resources, card, cold)
             for key, resources in candidates.items()]
    return tuple(sorted(found, key=lambda one: (
        bool(one.reasons), math.inf if one.latency_us is None else one.latency_us)))


def _ranked(key: K, target: Target, resources: Sequence[KernelResources], card: CardModel,
            cold: bool) -> Ranked[K]:
    if reasons := launch_limits.of_all(resources):
        return Ranked(key=key, latency_us=None, reasons=reasons)
    made = [predict(target, one, resources, card, cold=cold) for one in target.classes]
    known = tuple(one for one in made if one is not None)
    if len(known) < len(made):
        return Ranked(key=key, latency_us=None, predictions=known)
    mean = stats.weighted_mean([math.log(one.latency_us) for one in known],
                               [one.weight for one in target.classes])
    return Ranked(key=key, latency_us=math.exp(mean), predictions=known)


def _launches(resources: Sequence[KernelResources]) -> Iterable[list[KernelResources]]:
    """Yield the configs of each launch: a config seen before is a launch of its own."""
    group: list[KernelResources] = []
    for one in resources:
        if group and (one.kernel != group[0].kernel or not one.config
                      or one.config in {seen.config for seen in group}):
            yield group
            group = []
        group.append(one)
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
