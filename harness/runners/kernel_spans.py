"""Profile the kernels of a call on the GPU, and check the judged times against them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.formats.text import plain
from harness.isolation.rpc import Peer, decode_answer
from harness.timing.paired_timing import ClassTiming
from harness.verdict import Evidence, Finding

CALLS = 10
MOST_KERNELS = 8
MISSING = 0.67
"""Smallest accepted ratio of a timed call's time to that of a profiled one, which has colder
caches."""
SHORTEST_US = 2.0
"""Below this time the profiler's clock is too coarse for a finding."""


@dataclass(frozen=True, kw_only=True)
class KernelSpan:
    """One kernel; `launches` and `ns` are per call."""

    name: str
    launches: float
    ns: float

    def __post_init__(self) -> None:
        if not (0 <= self.ns < 1e15 and 0 <= self.launches < 1e9):
            raise ValueError("not a possible time of a kernel")


@dataclass(frozen=True, kw_only=True)
class CallProfile:
    """The kernels of a call; `busy_ns` is the least time for which it keeps the GPU busy."""

    busy_ns: float
    kernels: tuple[KernelSpan, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.busy_ns < 1e15 or len(self.kernels) > MOST_KERNELS:
            raise ValueError("not a profile")

    def describe(self) -> str:
        """Return the kernels in words, the longest first."""
        kernels = ", ".join(
            f"{plain(kernel.name, 60)} {kernel.ns / 1e3:.2f} us" + (
                "" if math.isclose(kernel.launches, 1.0) else f" in {kernel.launches:g}")
            for kernel in self.kernels[:3])
        more = f", {len(self.kernels) - 3} more" if len(self.kernels) > 3 else ""
        return f"{kernels}{more}" if kernels else "nothing"


def attach(runner: Peer) -> None:
    """Attach the profiler to a runner before the calls to profile. Raises PeerError."""
    runner.ask("attach")


def profile(runner: Peer, case: str) -> CallProfile:
    """Profile calls of a case that a runner has prepared. Raises PeerError."""
    return decode_answer(runner.ask("spans", case=case, calls=CALLS), CallProfile)


def evidence(profiles: Mapping[tuple[str, str], CallProfile], names: list[str], *,
             earlier: Collection[str] = ()) -> list[Evidence]:
    """Return each side's kernels by class; those of sides in `earlier` are from former verdicts."""
    lines = []
    for name in names:
        sides = [f"{side}{', profiled earlier,' * (side in earlier)} "
                 f"{profiles[side, name].describe()}"
                 for side in ("candidate", "incumbent") if (side, name) in profiles]
        if sides:
            lines.append(Evidence(kind="kernels", detail=f"{name}: {'; '.join(sides)} (profiler)"))
    return lines


def too_short(profiles: Mapping[tuple[str, str], CallProfile],
              timings: Mapping[str, ClassTiming]) -> list[Finding]:
    """Return a flag for every class where the candidate's timed calls are far shorter than its
    profiled kernels.
    """
    findings = []
    for name, timing in timings.items():
        profile = profiles.get(("candidate", name))
        busy_us = 0.0 if profile is None else profile.busy_ns / 1e3
        if busy_us >= SHORTEST_US and timing.candidate_us < MISSING * busy_us:
            findings.append(Finding(rule="spans", severity="flag", detail=(
                f"class {name}: a timed call takes {timing.candidate_us:.3g} us, but a profiled "
                f"call keeps the GPU busy for at least {busy_us:.3g} us")))
    return findings
