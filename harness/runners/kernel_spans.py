"""Which kernels a call runs on the GPU, by the profiler, held against the times that are judged."""

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
"""A timed call may take no less than this part of what the profiler saw: it finds colder caches."""
SHORTEST_US = 2.0
"""Below, the profiler's own clock is too coarse to accuse anyone."""


@dataclass(frozen=True, kw_only=True)
class KernelSpan:
    """One kernel: launches and nanoseconds a call."""

    name: str
    launches: float
    ns: float

    def __post_init__(self) -> None:
        if not (0 <= self.ns < 1e15 and 0 <= self.launches < 1e9):
            raise ValueError("no time that a kernel can take")


@dataclass(frozen=True, kw_only=True)
class CallProfile:
    """What a call runs; `busy_ns` is the least time that it keeps the GPU busy for."""

    busy_ns: float
    kernels: tuple[KernelSpan, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.busy_ns < 1e15 or len(self.kernels) > MOST_KERNELS:
            raise ValueError("no answer of a profiler")

    def told(self) -> str:
        """Say it in words, the kernels that take longest first."""
        kernels = ", ".join(
            f"{plain(one.name, 60)} {one.ns / 1e3:.2f} us" + (
                "" if math.isclose(one.launches, 1.0) else f" in {one.launches:g}")
            for one in self.kernels[:3])
        more = f", {len(self.kernels) - 3} more" if len(self.kernels) > 3 else ""
        return f"{kernels}{more}" if kernels else "nothing"


def attach(runner: Peer) -> None:
    """Attach the profiler to a runner, ahead of what it is to see. Raises PeerError."""
    runner.ask("attach")


def profile(runner: Peer, case: str) -> CallProfile:
    """Profile calls on what a runner has prepared. Raises PeerError."""
    return decode_answer(runner.ask("spans", case=case, calls=CALLS), CallProfile)


def evidence(seen: Mapping[tuple[str, str], CallProfile], names: list[str], *,
             earlier: Collection[str] = ()) -> list[Evidence]:
    """Return what each side runs, class by class; some were seen at an `earlier` verdict."""
    told = []
    for name in names:
        sides = [f"{side}{', seen earlier,' * (side in earlier)} {seen[side, name].told()}"
                 for side in ("candidate", "incumbent") if (side, name) in seen]
        if sides:
            told.append(Evidence(kind="kernels", detail=f"{name}: {'; '.join(sides)} (profiler)"))
    return told


def too_short(seen: Mapping[tuple[str, str], CallProfile],
            timings: Mapping[str, ClassTiming]) -> list[Finding]:
    """Return a flag for every class whose timed calls take less than what a call was seen to run.
    """
    found = []
    for name, timing in timings.items():
        one = seen.get(("candidate", name))
        busy_us = one.busy_ns / 1e3 if one is not None else 0.0
        if busy_us >= SHORTEST_US and timing.candidate_us < MISSING * busy_us:
            found.append(Finding(rule="spans", severity="flag", detail=(
                f"class {name}: a timed call takes {timing.candidate_us:.3g} us, and one under the "
                f"profiler keeps the GPU busy for {busy_us:.3g} us at least")))
    return found
