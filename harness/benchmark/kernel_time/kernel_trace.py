"""Where the GPU time of a benchmark's run goes, kernel by kernel, on an NVIDIA card."""

from __future__ import annotations

from collections.abc import Sequence

from harness.benchmark.kernel_time.cupti import KernelProfile
from harness.verdict import Evidence, KernelShare

MOST = 8
"""Kernels that a verdict lists."""
TOLD = 3


def shares(profile: KernelProfile) -> tuple[KernelShare, ...]:
    """Return the kernels that take most of a run's GPU time, the most first."""
    whole_ns = sum(kernel.total_ns for kernel in profile.values())
    ranked = sorted(profile.items(), key=lambda item: (-item[1].total_ns, item[0]))
    return tuple(KernelShare(name=name, launches=kernel.launches, mean_us=kernel.mean_ns / 1e3,
                             share=kernel.total_ns / whole_ns)
                 for name, kernel in ranked[:MOST])


def evidence(kernels: Sequence[KernelShare]) -> Evidence:
    """Say it in words."""
    told = [f"{one.name or 'unnamed kernels'} {one.share:.0%} ({one.launches} launches of "
            f"{one.mean_us:.4g} us)" for one in kernels[:TOLD]]
    return Evidence(kind="trace", detail=f"GPU time of a run goes to {', '.join(told)}, by CUPTI")
