"""What a call puts on the GPU, by the profiler: which kernels, and how long they keep it busy."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

MOST_KERNELS = 8
MOST_LETTERS = 120


def attach() -> None:
    """Have the profiler see what nobody asks for: that it can takes seconds, once a process."""
    with profile(activities=[ProfilerActivity.CUDA]):
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()


def spans(case: Any, calls: int) -> dict[str, Any]:
    """Profile calls on buffers that are prepared, after as many that are not profiled.

    `busy_ns` is what a call would take if every launch of a kernel took as little as the least:
    while others are on the card, a launch may take longer, never less.
    """
    case.run(calls)
    case.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        case.run(calls)
        case.synchronize()
    events = [event for event in traced.profiler.kineto_results.events()
              if event.device_type().name == "CUDA"]
    total: dict[str, list[int]] = defaultdict(list)
    for event in events:
        total[event.name()].append(event.duration_ns())
    longest = sorted(total, key=lambda name: -sum(total[name]))[:MOST_KERNELS]
    return {"busy_ns": sum(len(every) * min(every) for every in total.values()) / calls,
            "kernels": [{"name": name[:MOST_LETTERS], "launches": len(total[name]) / calls,
                         "ns": len(total[name]) * median(total[name]) / calls}
                        for name in longest]}
