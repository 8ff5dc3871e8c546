"""What a call puts on the GPU, by the profiler: which kernels, and how long they keep it busy."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torch.profiler import ProfilerActivity, profile

MOST_KERNELS = 8
MOST_LETTERS = 120


def spans(case: Any, calls: int) -> dict[str, Any]:
    """Profile calls on buffers that are prepared, after as many that are not profiled.

    `busy_ns` is the time in which at least one kernel or copy ran, a call.
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
    return {"busy_ns": _union([(e.start_ns(), e.start_ns() + e.duration_ns())
                               for e in events]) / calls,
            "kernels": [{"name": name[:MOST_LETTERS], "launches": len(total[name]) / calls,
                         "ns": sum(total[name]) / calls} for name in longest]}


def _union(intervals: list[tuple[int, int]]) -> int:
    covered, end = 0, 0
    for start, stop in sorted(intervals):
        covered += max(0, stop - max(start, end))
        end = max(end, stop)
    return covered
