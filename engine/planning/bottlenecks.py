"""Rank what limits the incumbent, from this machine's ceilings and from compilers' reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from engine.history import time_growth
from engine.journal.records import Bottleneck
from engine.knowledge import strategy_table
from engine.split.languages.c_language import C
from engine.split.languages.syntax import unneeded
from harness.benchmark.spec.command_target import CommandTarget
from harness.compile.c_compiler import Remark
from harness.compile.triton_aot import KernelLimit
from harness.errors import InputError
from harness.formats.quantities import latency
from harness.roofline import roofline
from harness.roofline.roofline import Roofline
from harness.search.space.knobs import Knob
from harness.tasks.target import Target
from harness.verdict import Row, Verdict

REACH = 12
"""Lines after the head of a loop in which a knob counts as the loop's own."""
SHORT_US = 10.0
"""A kernel with shorter launches spends much of its time on launching."""
FAR = 25.0
"""Percent of the roofline; a kernel below it is limited by something else than the roofline."""
KERNELS, SHARE = 3, 0.05
"""Most kernels of a benchmark that are listed, and their least share of its GPU time."""


class TunableBottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """A bottleneck and the knobs that may relieve it."""

    bottleneck: Bottleneck
    knobs: tuple[str, ...] = ()


def of_c(target: Target, source: str, knobs: Sequence[Knob], rows: Sequence[Row],
         reach: Roofline | None, remarks: Sequence[Remark]) -> list[TunableBottleneck]:
    """Return the loops of a C kernel that are not vectorised well, then its classes.

    The compiler's remarks name the loops. A class's share of the roofline says how much can be
    gained and whether memory or arithmetic bounds it; the lowest share comes first.
    """
    others = _unneeded_lines(source, target.entry)
    remarks = [remark for remark in remarks if remark.line not in others]
    widest = max((remark.vector_bytes for remark in remarks), default=0)
    loops = [_of_remark(target, remark, source, knobs) for remark in remarks
             if not remark.is_nest and (remark.vector_bytes == 0
                                        or remark.vector_bytes < max(widest, 32))]
    return loops + of_rows(target, knobs, rows, reach)


def _unneeded_lines(source: str, entry: str) -> set[int]:
    """Return the lines of a C source's functions that the entry does not need."""
    try:
        others = unneeded(C().items(source), entry)
    except InputError:
        return set()
    return {line for item in others for line in range(
        source.count("\n", 0, item.begin) + 1, source.count("\n", 0, item.end - 1) + 2)}


def of_resources(target: Target, knobs: Sequence[Knob], rows: Sequence[Row], reach: Roofline | None,
                 limits: Sequence[KernelLimit]) -> list[TunableBottleneck]:
    """Return the limits from a GPU kernel's compiler report, then the measured ones."""
    compiled = [_tunable(limit.kernel, limit.limiter, limit.config_class, limit.metric, limit.value,
                         limit.detail, knobs) for limit in limits]
    timed = [row for row in rows if row.latency_us is not None]
    return compiled + of_rows(target, knobs, timed, reach)


def of_rows(target: Target, knobs: Sequence[Knob], rows: Sequence[Row],
            reach: Roofline | None) -> list[TunableBottleneck]:
    """Return the bottlenecks that follow from measured classes alone, the lowest share first."""
    bottlenecks = [_of_row(target, row, reach, knobs) for row in rows]
    return sorted(bottlenecks, key=lambda tunable: tunable.bottleneck.value or 0.0)


def of_shares(target: CommandTarget, knobs: Sequence[Knob], best: Verdict,
              source: str) -> list[TunableBottleneck]:
    """Return the source's kernels with the most GPU time of a benchmark, then its classes by time.

    A run also launches other kernels: to fill buffers, flush a cache, or compute the reference.
    """
    kernels = [_tunable(
        kernel.name, f"time in {kernel.name}", "", "% of the run's GPU time", 100 * kernel.share,
        f"{kernel.launches} launches of {kernel.mean_us:.4g} us in a run, by the profiler", knobs,
        advice=strategy_table.advice("short launches") if kernel.mean_us < SHORT_US else "")
        for kernel in best.kernels
        if kernel.share >= SHARE and is_in(source, kernel.name)][:KERNELS]
    total_us = sum(row.latency_us or 0.0 for row in best.rows)
    classes = []
    for row in best.rows:
        if row.latency_us:
            growth = time_growth.of_class(best.rows, row)
            classes.append(_tunable(
                target.op, growth.limiter, row.config_class, "% of the benchmark",
                100 * row.latency_us / total_us, f"{growth.evidence}; {latency(row.latency_us)} of "
                f"{latency(total_us)}, as the benchmark reports it", knobs,
                advice=growth.advice))
    return kernels + sorted(classes, key=lambda tunable: -(tunable.bottleneck.value or 0))


def is_in(source: str, kernel: str) -> bool:
    """Return whether a source contains a kernel's name, which may be a template's or mangled."""
    identifiers = set(re.findall(r"[A-Za-z_]\w*", source))
    name = re.split(r"[<(]", kernel)[0].rpartition("::")[2].split()
    return bool(name) and (name[-1] in identifiers or any(
        len(word) > 3 and f"{len(word)}{word}" in kernel for word in identifiers))


def ranked(campaign: str, round: int,
           bottlenecks: Sequence[TunableBottleneck]) -> tuple[TunableBottleneck, ...]:
    """Return the bottlenecks of a round with their ranks and ids, in their order."""
    return tuple(msgspec.structs.replace(tunable, bottleneck=msgspec.structs.replace(
        tunable.bottleneck, campaign=campaign, round=round, rank=rank, id=f"b{round}.{rank}"))
        for rank, tunable in enumerate(bottlenecks, 1))


def _of_row(target: Target, row: Row, reach: Roofline | None,
            knobs: Sequence[Knob]) -> TunableBottleneck:
    limiter, detail = "latency", "no roofline is known for this device"
    share = row.pct_of_roofline
    if reach is not None:
        point = reach.point(target, target.config_class(row.config_class))
        limiter, detail = point.limiter, "not measured"
        if row.latency_us and point.us:  # an old verdict recorded its share of the floor instead
            share = roofline.percent(point.us, row.latency_us)
            detail = f"{latency(row.latency_us)} against a roofline of {latency(point.us)} " \
                f"at {point.rate_text}"
            if target.flops is None and share < FAR:
                detail += ", of its bytes alone: the task states no flops"
    return _tunable(target.entry, limiter, row.config_class, "% of roofline", share, detail, knobs,
                    advice=strategy_table.advice("far from the roofline")
                    if share is not None and share < FAR else "")


def _of_remark(target: Target, remark: Remark, source: str,
               knobs: Sequence[Knob]) -> TunableBottleneck:
    lines = source.splitlines()
    text = lines[remark.line - 1].strip() if remark.line <= len(lines) else ""
    loop_text = "\n".join(lines[max(0, remark.line - 2): remark.line + REACH])
    loop_knobs = [knob for knob in knobs if re.search(rf"\b{knob.name}\b", loop_text)]
    if remark.vector_bytes:
        limiter = "narrow vectors"
        detail = f"line {remark.line}: {remark.vector_bytes}-byte vectors: {text}"
    else:
        limiter = "not vectorised"
        detail = f"line {remark.line}: {remark.why or 'no reason given'}: {text}"
    return _tunable(target.entry, limiter, "", "vector bytes", float(remark.vector_bytes), detail,
                    loop_knobs)


def _tunable(kernel: str, limiter: str, config_class: str, metric: str, value: float | None,
             detail: str, knobs: Sequence[Knob], *, advice: str = "") -> TunableBottleneck:
    """Return a bottleneck with the advice of the table of strategies, unless another is given."""
    bottleneck = Bottleneck(campaign="", round=0, rank=0, id="", kernel=kernel,
                            config_class=config_class, limiter=limiter, metric=metric, value=value,
                            detail=detail,
                            advice=advice or strategy_table.advice(limiter))
    return TunableBottleneck(bottleneck=bottleneck, knobs=tuple(knob.name for knob in knobs))
