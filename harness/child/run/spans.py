"""Profiles a call: which kernels it launches on the GPU, and how long they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.autograd.profiler import profile

MOST_KERNELS = 8
MOST_LETTERS = 120


def attach() -> None:
    """Use the profiler once and discard the result, because the first use is slow."""
    gpu_events(lambda: torch.zeros(1, device="cuda"))


def gpu_events(work: Callable[[], object]) -> list[Any]:
    """Return the profiler's (kineto) events of running `work`, those on the GPU.

    Uses the class on which `torch.profiler.profile` is built: the latter reads a setting of
    torch._inductor and so imports 900 modules, which costs every process three seconds.
    """
    try:
        watching: Any = profile(use_device="cuda", use_cpu=False, use_kineto=True)
    except (TypeError, AssertionError):  # older versions of torch take no device names
        return _gpu_events_slowly(work)
    with watching:
        work()
    return list(watching.kineto_results.events())


def _gpu_events_slowly(work: Callable[[], object]) -> list[Any]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as whole

    with whole(activities=[ProfilerActivity.CUDA]) as watching:
        work()
        torch.cuda.synchronize()
    return list(watching.profiler.kineto_results.events())


def spans(case: Any, calls: int) -> dict[str, Any]:
    """Profile `calls` calls on prepared buffers, after as many warm-up calls.

    `busy_ns` is the time of a call's kernels if each launch took the shortest time seen for that
    kernel: other processes on the card can only make a launch longer.
    """
    def run() -> None:
        case.run(calls)
        case.synchronize()

    run()
    events = [event for event in gpu_events(run) if event.device_type().name == "CUDA"]
    total: dict[str, list[int]] = defaultdict(list)
    for event in events:
        total[event.name()].append(event.duration_ns())
    longest = sorted(total, key=lambda name: -sum(total[name]))[:MOST_KERNELS]
    return {"busy_ns": sum(len(durations) * min(durations) for durations in total.values()) / calls,
            "kernels": [{"name": name[:MOST_LETTERS], "launches": len(total[name]) / calls,
                         "ns": len(total[name]) * median(total[name]) / calls}
                        for name in longest]}
