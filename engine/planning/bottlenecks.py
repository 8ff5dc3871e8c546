"""What limits the incumbent: this machine's ceilings and the compiler's own words, ranked."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from engine.journal.records import Bottleneck
from harness.benchmark.spec.command_target import CommandTarget
from harness.compile.triton_aot import Limit
from harness.compile.vectorization_remarks import Remark
from harness.roofline import roofline
from harness.roofline.roofline import Roofline
from harness.search.space.knobs import Knob
from harness.target import Target
from harness.verdict import Row, Verdict

REACH = 12
"""Lines after a loop's first in which a knob counts as the loop's own."""
KERNELS, SHARE = 3, 0.05
"""Of a benchmark, that are told of, and the part of its GPU time that they take at least."""


class TunableBottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """A bottleneck and the knobs that reach it."""

    bottleneck: Bottleneck
    knobs: tuple[str, ...] = ()


def of_c(campaign: str, round: int, target: Target, source: str, knobs: Sequence[Knob],
         rows: Sequence[Row], reach: Roofline | None, remarks: Sequence[Remark],
         ) -> list[TunableBottleneck]:
    """Return the bottlenecks of a C kernel, the heaviest first.

    A class's share of the roofline says how much is to be had and whether memory or arithmetic
    bounds it; the compiler's remarks say which loop leaves it there.
    """
    leads = [_of_row(target, row, reach, knobs) for row in rows]
    leads.sort(key=lambda lead: lead.bottleneck.value or 0.0)
    widest = max((remark.vector_bytes for remark in remarks), default=0)
    loops = [_of_remark(target, remark, source, knobs, widest) for remark in remarks
             if not remark.is_nest and (remark.vector_bytes == 0
                                        or remark.vector_bytes < max(widest, 32))]
    return _ranked(campaign, round, loops + leads)


def of_rows(campaign: str, round: int, target: Target, knobs: Sequence[Knob],
            rows: Sequence[Row], reach: Roofline | None) -> list[TunableBottleneck]:
    """Return the bottlenecks that the measured classes alone tell of, the furthest off first."""
    leads = [_of_row(target, row, reach, knobs) for row in rows]
    return _ranked(campaign, round, sorted(leads, key=lambda lead: lead.bottleneck.value or 0.0))


def of_shares(campaign: str, round: int, target: CommandTarget, knobs: Sequence[Knob],
              best: Verdict, source: str) -> list[TunableBottleneck]:
    """Return the kernels of the source that most of a benchmark's GPU time goes to, as far as that
    is known, and its classes, those first that most of its time goes to.

    A run has others as well: what fills buffers, flushes a cache, is the reference.
    """
    rows, names = best.rows, tuple(knob.name for knob in knobs)
    kernels = [TunableBottleneck(bottleneck=Bottleneck(
        campaign="", round=0, rank=0, id="", kernel=one.name, config_class="",
        limiter=f"time in {one.name}", metric="% of the run's GPU time", value=100 * one.share,
        detail=f"{one.launches} launches of {one.mean_us:.4g} us in a run, by CUPTI",
        advice="what this kernel spends is to be had first"), knobs=names)
        for one in best.kernels if one.share >= SHARE and is_in(source, one.name)][:KERNELS]
    total = sum(row.latency_us or 0.0 for row in rows)
    leads = [TunableBottleneck(bottleneck=Bottleneck(
        campaign="", round=0, rank=0, id="", kernel=target.op, config_class=row.config_class,
        limiter="share of the time", metric="% of the benchmark",
        value=100 * row.latency_us / total,
        detail=f"{row.latency_us:.4g} us of {total:.4g} us, as the benchmark reports it",
        advice="what this class spends is to be had first"), knobs=names)
        for row in rows if row.latency_us]
    leads.sort(key=lambda lead: -(lead.bottleneck.value or 0))
    return _ranked(campaign, round, kernels + leads)


def is_in(source: str, kernel: str) -> bool:
    """Tell whether a source has a kernel of that name, be it a template's or mangled."""
    words = set(re.findall(r"[A-Za-z_]\w*", source))
    name = re.split(r"[<(]", kernel)[0].rpartition("::")[2].split()
    return bool(name) and (name[-1] in words or any(
        len(word) > 3 and f"{len(word)}{word}" in kernel for word in words))


def of_triton(campaign: str, round: int, target: Target, knobs: Sequence[Knob],
              rows: Sequence[Row], reach: Roofline | None, limits: Sequence[Limit],
              ) -> list[TunableBottleneck]:
    """Return what ahead-of-time compilation says of a Triton kernel, then what was measured."""
    names = tuple(knob.name for knob in knobs)
    leads = [TunableBottleneck(bottleneck=msgspec.structs.replace(
        _bottleneck(target, limit.limiter, limit.config_class, limit.metric, limit.value,
                    limit.detail, limit.advice), kernel=limit.kernel), knobs=names)
        for limit in limits]
    rest = [_of_row(target, row, reach, knobs) for row in rows if row.latency_us is not None]
    rest.sort(key=lambda lead: lead.bottleneck.value or 0.0)
    return _ranked(campaign, round, leads + rest)


def _ranked(campaign: str, round: int,
            leads: Sequence[TunableBottleneck]) -> list[TunableBottleneck]:
    return [msgspec.structs.replace(lead, bottleneck=msgspec.structs.replace(
        lead.bottleneck, campaign=campaign, round=round, rank=rank, id=f"b{round}.{rank}"))
        for rank, lead in enumerate(leads, 1)]


def _of_row(target: Target, row: Row, reach: Roofline | None,
            knobs: Sequence[Knob]) -> TunableBottleneck:
    limiter, detail = "latency", "no roofline is known for this device"
    share = row.pct_of_roofline
    if reach is not None:
        point = reach.point(target, target.config_class(row.config_class))
        limiter, detail = point.limiter, "not measured"
        if row.latency_us and point.us:  # not the row's: an old verdict's is of the floor
            share = roofline.percent(point.us, row.latency_us)
            detail = (f"{row.latency_us:.3g} us against a roofline of {point.us:.3g} us "
                      f"at {point.rate_text}")
    advice = ("move less, in longer runs, and overlap what moves" if limiter == "memory"
              else "keep more independent multiply-adds in flight")
    return TunableBottleneck(
        bottleneck=_bottleneck(target, limiter, row.config_class, "% of roofline", share, detail,
                               advice), knobs=tuple(knob.name for knob in knobs))


def _of_remark(target: Target, remark: Remark, source: str, knobs: Sequence[Knob],
               widest: int) -> TunableBottleneck:
    lines = source.splitlines()
    text = lines[remark.line - 1].strip() if remark.line <= len(lines) else ""
    near = "\n".join(lines[max(0, remark.line - 2): remark.line + REACH])
    names = tuple(knob.name for knob in knobs if re.search(rf"\b{knob.name}\b", near))
    if remark.vector_bytes:
        limiter = "narrow vectors"
        detail = f"line {remark.line}: {remark.vector_bytes}-byte vectors: {text}"
        advice = "give the loop a constant, wider trip count"
    else:
        limiter = "not vectorised"
        detail = f"line {remark.line}: {remark.why or 'no reason given'}: {text}"
        advice = "break the dependency or the branch that stops the vectoriser"
    return TunableBottleneck(bottleneck=_bottleneck(target, limiter, "", "vector bytes",
                                       float(remark.vector_bytes), detail, advice), knobs=names)


def _bottleneck(target: Target, limiter: str, config_class: str, metric: str,
                value: float | None, detail: str, advice: str) -> Bottleneck:
    return Bottleneck(campaign="", round=0, rank=0, id="", kernel=target.entry,
                      config_class=config_class, limiter=limiter, metric=metric, value=value,
                      detail=detail, advice=advice)
