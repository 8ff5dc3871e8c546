"""Decide whether GPU kernel time confirms a reported gain, contradicts it, or is unclear.

The number of calls is unknown: do_bench calls as often as time allows. So two times are compared:
kernel time per call, with the most launched kernel's launches as calls, and of the whole run. If
the launches differ, the whole run must show the gain, or unchanged kernels must count the calls. A
rise contradicts a gain only if nothing observed explains the rise. Copies and overlap, which are
not observed, may still explain it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from harness.benchmark.kernel_time.profile import (
    KernelLaunches,
    KernelProfile,
    KernelTimeUnavailable,
)
from harness.formats.text import plain

KernelTimeRuling = Literal["less", "more", "unclear"]
Sign = Literal[-1, 0, 1]
UNCHANGED = 0.02
"""A kernel is unchanged if its mean time changes by at most this, and by at most half the gain."""
CHANGED, RISEN = 0.005, 0.02
"""The least change of kernel time that counts, and the least rise that contradicts a gain."""
CHANGED_RUN = 0.05
"""The least change of the whole run's kernel time that counts if launches differ: time-limited
benchmarks vary so much."""
LEAST_PART = 0.25
"""The part of a reported gain that kernel time must show at least."""
LEAST_CHANGED_SHARE = 0.05
"""Changed kernels decide only if they have at least this share of the run's kernel time."""
SAME_LAUNCHES = 0.02
RARE = 0.05
"""A kernel with fewer launches than this share of the most launched kernel's is rare: its launches
are not taken as the number of calls."""
FEWER, LARGER = 0.9, 1.5
"""Ratios of kernels per call and of blocks per launch that show a differently built call."""


@dataclass(frozen=True, kw_only=True)
class KernelTimeTotals:
    """Totals of one side's changed kernels; `whole_ns` is of all kernels."""

    call_ns: float
    total_ns: int
    whole_ns: int
    launches: int
    kernels_per_call: float
    blocks_per_launch: float
    least_ns: int
    most_launched: str


@dataclass(frozen=True, kw_only=True)
class KernelTimeComparison:
    """The comparison; `why` says what is unclear, `unchanged` is a number of kernels."""

    ruling: KernelTimeRuling
    before: KernelTimeTotals
    after: KernelTimeTotals
    unchanged: int
    why: str = ""
    tool: str = "CUPTI"

    @property
    def times(self) -> str:
        """Return both times per call, as in `12.3 us to 9.8 us per call`."""
        return f"{self.before.call_ns / 1e3:.4g} us to {self.after.call_ns / 1e3:.4g} us per call"

    @property
    def description(self) -> str:
        """Return the whole comparison in words, as evidence."""
        sides = [f"{side.launches} launches of {plain(side.most_launched, 80) or 'unnamed kernels'}"
                 for side in (self.before, self.after)]
        unchanged = f"; {self.unchanged} unchanged kernels do not count" if self.unchanged else ""
        return (f"GPU kernel time went from {self.times} ({sides[0]}, then {sides[1]}), of the "
                f"whole run from {self.before.whole_ns / 1e6:.4g} ms to "
                f"{self.after.whole_ns / 1e6:.4g} ms, by {self.tool}{unchanged}")


def compare(before: KernelProfile, after: KernelProfile, gain: float, *,
            is_even: bool = True, tool: str = "CUPTI") -> KernelTimeComparison:
    """Compare incumbent and candidate; `gain` is the reported log-ratio of the whole table.

    `is_even`: no row is reported slower; otherwise a gain need not show in the sum of rows.
    """
    unchanged = _unchanged(before, after, gain)
    old, new = _totals(before, unchanged), _totals(after, unchanged)
    counted = _gain_by_counted_calls(before, after, unchanged, old, new)
    ruling, why = _ruling(old, new, gain, is_even, counted)
    return KernelTimeComparison(ruling=ruling, before=old, after=new, unchanged=len(unchanged),
                                why=why, tool=tool)


def call_times_us(before: KernelProfile, after: KernelProfile) -> tuple[float, float]:
    """Return the kernel time of one call on both sides of a run that measures one row.

    Kernels that are launched less than once in 20 calls prepare the run and belong to no call.
    The launches of the most launched kernel are the number of calls. If the sides differ in them,
    the calls are the launches of a kernel that both sides launch equally often, or that takes
    equally long, such as a cache flush; of several, the one that shows the least gain. A flush
    counts as a part of each call, so a gain may be understated. Raises KernelTimeUnavailable if
    calls cannot be counted, or if the candidate's rare kernels take longer than the incumbent's.
    """
    sides = (before, after)
    calls = [max(kernel.launches for kernel in side.values()) for side in sides]
    per_call = [{name: kernel for name, kernel in side.items() if kernel.launches >= RARE * most}
                for side, most in zip(sides, calls, strict=True)]
    rare_ns = [_sum(side).total_ns - _sum(kernels).total_ns
               for side, kernels in zip(sides, per_call, strict=True)]
    if rare_ns[1] > rare_ns[0] * (1 + RISEN) + CHANGED * _sum(per_call[1]).total_ns:
        raise KernelTimeUnavailable(
            "its rarely launched kernels take longer, and may do the work of the calls")
    if not _are_alike(*calls):
        old_kernels, new_kernels = per_call
        pairs = [(old_kernels[name], new_kernels[name])
                 for name in old_kernels.keys() & new_kernels.keys()]
        counts = [(old.launches, new.launches) for old, new in pairs
                  if _are_alike(old.launches, new.launches)
                  or abs(new.mean_ns / old.mean_ns - 1) <= UNCHANGED]
        if not counts:
            raise KernelTimeUnavailable(
                f"its calls cannot be counted: {calls[0]} launches became {calls[1]}")
        calls = [*min(counts, key=lambda count: count[1] / count[0])]
    before_us, after_us = (_sum(kernels).total_ns / count / 1e3
                           for kernels, count in zip(per_call, calls, strict=True))
    return before_us, after_us


def _are_alike(before: int, after: int) -> bool:
    return abs(after / before - 1) <= SAME_LAUNCHES


def _unchanged(before: KernelProfile, after: KernelProfile, gain: float) -> frozenset[str]:
    """Return the unchanged kernels; only the rare ones of them if the others could not decide."""
    tolerance = min(UNCHANGED, math.expm1(max(gain, 0.0)) / 2)
    names = frozenset(name for name in before.keys() & after.keys()
                      if abs(after[name].mean_ns / before[name].mean_ns - 1) <= tolerance)
    shares = [sum(k.total_ns for name, k in side.items() if name not in names)
            / sum(k.total_ns for k in side.values()) for side in (before, after)]
    if min(shares) > 0 and max(shares) >= LEAST_CHANGED_SHARE:
        return names
    return frozenset(name for name in names if all(
        side[name].launches < RARE * max(k.launches for k in side.values())
        for side in (before, after)))


def _totals(profile: KernelProfile, unchanged: frozenset[str]) -> KernelTimeTotals:
    changed = {name: kernel for name, kernel in profile.items() if name not in unchanged}
    most = max(changed, key=lambda name: (changed[name].launches, changed[name].total_ns))
    launches = changed[most].launches
    total = _sum(changed)
    return KernelTimeTotals(
        call_ns=total.total_ns / launches, total_ns=total.total_ns,
        whole_ns=_sum(profile).total_ns, launches=launches,
        kernels_per_call=total.launches / launches, least_ns=changed[most].least_ns,
        most_launched=most, blocks_per_launch=total.blocks / total.launches)


def _sum(profile: KernelProfile) -> KernelLaunches:
    return reduce(operator.add, profile.values())


def _gain_by_counted_calls(before: KernelProfile, after: KernelProfile,
                           unchanged: frozenset[str], old: KernelTimeTotals,
                           new: KernelTimeTotals) -> float | None:
    """Return the least log-gain per call, with unchanged kernels' launches as calls, or None."""
    counting = [name for name in unchanged if before[name].launches >= RARE * old.launches
                and after[name].launches >= RARE * new.launches]
    return min((math.log(old.total_ns / before[name].launches)
                - math.log(new.total_ns / after[name].launches) for name in counting),
               default=None)


def _ruling(old: KernelTimeTotals, new: KernelTimeTotals, gain: float, is_even: bool,
            counted: float | None) -> tuple[KernelTimeRuling, str]:
    if gain <= 0:
        return "unclear", "the benchmark reports no gain over the whole table"
    is_same = _are_alike(old.launches, new.launches)
    call = math.log(old.call_ns / new.call_ns)
    run = math.log(old.total_ns / new.total_ns)
    signs = (_sign(call, CHANGED), _sign(run, CHANGED if is_same else CHANGED_RUN))
    if 1 in signs and -1 in signs:
        return "unclear", "kernel time per call and of the run changed in opposite directions"
    if 1 in signs:
        shown = max(call, run)
        if shown < LEAST_PART * gain:
            return "unclear", f"kernel time shows a gain of only {math.expm1(shown):.1%}"
        if is_same or max(run, -math.inf if counted is None else counted) >= LEAST_PART * gain:
            return "less", ""
        return "unclear", "its launches differ, and the number of launches per call is unknown"
    if max(-call, -run) <= math.log1p(RISEN):
        return "unclear", "kernel time hardly changed"
    doubt = next(_doubts(old, new, is_same, is_even), "")
    return ("unclear", doubt) if doubt else ("more", "")


def _sign(change: float, least: float) -> Sign:
    """Return 1 for less time, -1 for more, 0 for no change."""
    return 0 if abs(change) <= math.log1p(least) else 1 if change > 0 else -1


def _doubts(old: KernelTimeTotals, new: KernelTimeTotals, is_same: bool,
            is_even: bool) -> Iterator[str]:
    """Yield other explanations for a rise of kernel time."""
    if not is_even:
        yield "some rows are reported slower, and may weigh more"
    if _sign(math.log(old.call_ns / new.call_ns), RISEN) == 0 and not is_same:
        yield "it launches more kernels, and each takes as long as before"
    if new.kernels_per_call < FEWER * old.kernels_per_call:
        yield "a call launches fewer kernels, and may gain by that"
    if not is_same and new.launches < old.launches and \
            new.blocks_per_launch >= LARGER * old.blocks_per_launch:
        yield "it launches fewer and larger kernels"
    if not is_same and new.least_ns < old.least_ns * (1 - CHANGED):
        yield "its shortest launch took less, and others may be tuning runs"
