"""Whether the time of GPU kernels bears a reported gain out, speaks against it, or cannot tell.

How often a benchmark calls what it measures is not known, and one such as do_bench calls it as
often as time allows: what is compared is the time a launch of what is launched most often, and the
time of the run. Where launches differ, the former means nothing by itself: then the run must show
the gain, or kernels that are nobody's change must count the calls. It speaks against a gain only
where nothing seen here explains that it went up; what is not seen, copies and kernels that overlap,
may explain it all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.benchmark.kernel_time.cupti import KernelLaunches, KernelProfile
from harness.formats.text import plain

KernelTimeRuling = Literal["less", "more", "unclear"]
Sign = Literal[-1, 0, 1]
ALIKE = 0.02
"""Kernels of one name whose mean agrees so well are not the candidate's; of a small gain, half."""
CHANGED, AGAINST = 0.005, 0.02
"""A smaller change of kernel time is none; a smaller rise speaks against nothing: two processes
with the same kernels may differ so.
"""
BY_TIME = 0.05
"""Of the run's where launches differ: what runs for a given time keeps that only so well."""
PART = 0.25
"""Of a reported gain that kernel time must show at least."""
SMALL = 0.05
"""Of the run's kernel time: what is left once kernels are set aside must be more to decide."""
SAME_LAUNCHES = 0.02
RARE = 0.05
"""Of the launches of what is launched most often: such kernels, if alike, are no part of a call;
those launched more often count the calls, as what flushes a cache does.
"""
FEWER, LARGER = 0.9, 1.5
"""Kernels a call, and blocks a launch, that show that a call is made up in another way."""


@dataclass(frozen=True, kw_only=True)
class KernelTimeTotals:
    """One side's kernels once others are set aside; `whole_ns` is of all."""

    call_ns: float
    total_ns: int
    whole_ns: int
    launches: int
    kernels_a_call: float
    blocks_a_launch: float
    least_ns: int
    most: str


@dataclass(frozen=True, kw_only=True)
class KernelTimeComparison:
    """What kernel time says of a gain, with the numbers; `why` it cannot tell."""

    ruling: KernelTimeRuling
    before: KernelTimeTotals
    after: KernelTimeTotals
    aside: int
    why: str = ""

    @property
    def numbers(self) -> str:
        """The two times a call, as in `12.3 us to 9.8 us a call`."""
        return f"{self.before.call_ns / 1e3:.4g} us to {self.after.call_ns / 1e3:.4g} us a call"

    @property
    def told(self) -> str:
        """All that was seen, for evidence."""
        sides = [f"{one.launches} launches of {plain(one.most, 80) or 'unnamed kernels'}"
                 for one in (self.before, self.after)]
        aside = f"; {self.aside} kernels alike on both sides are set aside" if self.aside else ""
        return (f"GPU kernel time went from {self.numbers} ({sides[0]}, then {sides[1]}), of the "
                f"whole run from {self.before.whole_ns / 1e6:.4g} ms to "
                f"{self.after.whole_ns / 1e6:.4g} ms, by CUPTI{aside}")


def compare(before: KernelProfile, after: KernelProfile, gain: float, *,
            even: bool = True) -> KernelTimeComparison:
    """Compare incumbent and candidate; `gain` is the reported log-ratio of the whole table.

    `even` says that no row is reported slower: else a gain need not show in the sum of all rows.
    Neither profile is empty.
    """
    aside = _aside(before, after, gain)
    old, new = _weight(before, aside), _weight(after, aside)
    counted = _by_count(before, after, aside, old, new)
    ruling, why = _ruled(old, new, gain, even, counted)
    return KernelTimeComparison(ruling=ruling, before=old, after=new, aside=len(aside), why=why)


def _aside(before: KernelProfile, after: KernelProfile, gain: float) -> frozenset[str]:
    """Return the kernels that are nobody's change; of these only the rare, such as those of a
    reference, where hardly anything would be left.
    """
    alike = min(ALIKE, math.expm1(max(gain, 0.0)) / 2)
    names = frozenset(name for name in before.keys() & after.keys()
                      if abs(after[name].mean_ns / before[name].mean_ns - 1) <= alike)
    left = [sum(k.total_ns for name, k in side.items() if name not in names)
            / sum(k.total_ns for k in side.values()) for side in (before, after)]
    if min(left) > 0 and max(left) >= SMALL:
        return names
    return frozenset(name for name in names if all(
        side[name].launches < RARE * max(k.launches for k in side.values())
        for side in (before, after)))


def _weight(profile: KernelProfile, aside: frozenset[str]) -> KernelTimeTotals:
    own = {name: kernel for name, kernel in profile.items() if name not in aside}
    most = max(own, key=lambda name: (own[name].launches, own[name].total_ns))
    launches = own[most].launches
    everything = _sum(own)
    return KernelTimeTotals(
        call_ns=everything.total_ns / launches, total_ns=everything.total_ns,
        whole_ns=_sum(profile).total_ns, launches=launches,
        kernels_a_call=everything.launches / launches, least_ns=own[most].least_ns, most=most,
        blocks_a_launch=everything.blocks / everything.launches)


def _sum(profile: KernelProfile) -> KernelLaunches:
    first, *others = profile.values()
    for kernel in others:
        first = first + kernel
    return first


def _by_count(before: KernelProfile, after: KernelProfile, aside: frozenset[str],
              old: KernelTimeTotals, new: KernelTimeTotals) -> float | None:
    """Return the least log-gain a call that kernels set aside show by counting the calls, None if
    there are none that do.
    """
    counting = [name for name in aside if before[name].launches >= RARE * old.launches
                and after[name].launches >= RARE * new.launches]
    return min((math.log(old.total_ns / before[name].launches)
                - math.log(new.total_ns / after[name].launches) for name in counting),
               default=None)


def _ruled(old: KernelTimeTotals, new: KernelTimeTotals, gain: float, even: bool,
           counted: float | None) -> tuple[KernelTimeRuling, str]:
    if gain <= 0:
        return "unclear", "no gain of the whole table is reported"
    same = abs(new.launches / old.launches - 1) <= SAME_LAUNCHES
    call = math.log(old.call_ns / new.call_ns)
    run = math.log(old.total_ns / new.total_ns)
    signs = (_sign(call, CHANGED), _sign(run, CHANGED if same else BY_TIME))
    if 1 in signs and -1 in signs:
        return "unclear", "kernel time a call and of the run went different ways"
    if 1 in signs:
        shown = max(call, run)
        if shown < PART * gain:
            return "unclear", f"kernel time shows a gain of {math.expm1(shown):.1%} alone"
        if same or run >= PART * gain or (counted is not None and counted >= PART * gain):
            return "less", ""
        return "unclear", "its launches differ, and how often a call it launches is not known"
    if max(-call, -run) <= math.log1p(AGAINST):
        return "unclear", "kernel time hardly changed"
    doubt = next(_doubts(old, new, same, even), "")
    return ("unclear", doubt) if doubt else ("more", "")


def _sign(change: float, least: float) -> Sign:
    """Return 1 for less time, -1 for more, 0 for what is no change."""
    return 0 if abs(change) <= math.log1p(least) else 1 if change > 0 else -1


def _doubts(old: KernelTimeTotals, new: KernelTimeTotals, same: bool, even: bool) -> Iterator[str]:
    """Yield what else explains that kernel time went up."""
    if not even:
        yield "some rows are reported slower, and may weigh more"
    if _sign(math.log(old.call_ns / new.call_ns), AGAINST) == 0 and not same:
        yield "it launches more often, and each takes as long as before"
    if new.kernels_a_call < FEWER * old.kernels_a_call:
        yield "a call launches fewer kernels, and may gain by that"
    if not same and new.launches < old.launches and \
            new.blocks_a_launch >= LARGER * old.blocks_a_launch:
        yield "it launches fewer and larger kernels"
    if not same and new.least_ns < old.least_ns * (1 - CHANGED):
        yield "its shortest launch took less, and others may be of its tuning"
