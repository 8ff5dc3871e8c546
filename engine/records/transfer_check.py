"""Would a gain carry over to real training or serving? What of it is believed, and why.

A benchmark calls with the same tensors again and again. What a kernel does faster inside (K1-K4)
carries over as it was measured. A cache of weights (W1) helps only the calls that find it, what
recognises other tensors (W2, W3) nothing: rule 11 of seed 003.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from engine.history.history import CampaignHistory
from engine.markdown import gain
from harness.verdict import Row, Transfer, Verdict

CALLS_PER_STEP = 2
"""A step of training calls forward and backward; a trace tells of the hits in one step."""
UNTRACED = math.log(1.015)
"""What a cache of weights counts for where nobody traced it: about 1.5 % of a step at most."""


class TransferCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one verdict; `measured` and `real` are ln(before / after), None if not timed."""

    audit: Transfer | None
    measured: float | None
    real: float | None
    derivation: str
    skewed: tuple[str, ...] = ()
    """What classes of skewed shapes gained."""

    @property
    def bucket(self) -> str:
        return self.audit.bucket if self.audit else "not audited"

    @property
    def decision(self) -> str:
        """What was decided; a gain that nobody audited has an asterisk too."""
        return self.audit.decision if self.audit else "ACCEPT-with-asterisk"

    def lines(self, *, kept: bool) -> Iterator[str]:
        """Yield the section of a round's summary, one fact a line."""
        yield f"bucket: {self.bucket}"
        if self.audit is None:
            yield "cache key, id audit, hit rate: not known: nobody could tell, or the verdict " \
                  "ended before"
        else:
            yield f"cache key: {'; '.join(self.audit.cache_keys) or 'none'}"
            yield f"id audit: {self.audit.id_audit or 'not made'}"
            yield f"hit rate: {_hits(self.audit)}"
        assumed = "; ".join(self.audit.skew) if self.audit else ""
        yield f"skew robustness: {assumed or 'no assumption on the sizes of groups was seen'}" \
            + "".join(f"; {told}" for told in self.skewed)
        yield f"benchmark gain: {gain(self.measured)}"
        yield f"estimated real gain: {gain(self.real)}: {self.derivation}"
        if self.audit is None and not kept:
            yield "decision: none: not audited, and rolled back"
        else:
            yield f"decision: {self.decision} " \
                  f"({self.audit.reason if self.audit else 'not audited'})"


def check(verdict: Verdict) -> TransferCheck:
    """Estimate what a verdict's gain is worth outside of its benchmark."""
    audit = verdict.transfer
    measured = None if verdict.speedup is None else math.log(verdict.speedup)
    real, why = (measured, "nobody audited it; as measured") if audit is None else \
        _estimate(audit, measured)
    return TransferCheck(audit=audit, measured=measured, real=real, derivation=why,
                 skewed=tuple(_skewed(verdict.rows)))


def of_round(past: CampaignHistory, n: int) -> list[tuple[str, TransferCheck]]:
    """Return the candidates of a round that its summary checks: all that were kept, else the
    fastest that was right, else the first that was audited.
    """
    judged = [(d, past.verdicts[d.verdict]) for d in past.decisions
              if d.round == n and d.verdict in past.verdicts]
    kept = [pair for pair in judged if pair[0] in past.keeps]
    audited = [pair for pair in judged if pair[1].decode().transfer is not None]
    shown = kept or past.judged(n)[:1] or audited[:1]
    return [(decision.candidate, check(row.decode())) for decision, row in shown]


def _estimate(found: Transfer, measured: float | None) -> tuple[float | None, str]:
    if found.bucket in ("W2", "W3") or found.decision == "REJECT-as-overfit":
        return 0.0, "what it recognises never comes back in use, so nothing is gained"
    if measured is None:
        return None, "it was not timed"
    if found.bucket != "W1":
        doubt = ", where groups are as it assumes" if found.skew else ""
        return measured, f"{found.bucket}: every call does as the benchmark's calls do{doubt}"
    steps = found.hit_rates or ()
    if not steps:
        return min(measured, UNTRACED), \
            f"W1, not traced: what preparing a weight costs, {gain(UNTRACED)} of a step at most"
    hits = sum(step.weight_hits > 0 for step in steps)
    share = hits / (CALLS_PER_STEP * len(steps))
    real = -math.log(1 - share + share * math.exp(-measured))
    return min(measured, real), (
        f"W1: weights hit in {hits} of {len(steps)} steps of {CALLS_PER_STEP} calls, so "
        f"{share:.0%} of the calls are as fast as measured; no more than preparing a weight costs")


def _hits(found: Transfer) -> str:
    if found.hit_rates is None:
        return "no cache, nothing to hit"
    if not found.hit_rates:
        return "not traced"
    weights, others = (sum(getattr(step, name) > 0 for step in found.hit_rates)
                       for name in ("weight_hits", "other_hits"))
    steps = len(found.hit_rates)
    return f"weights in {weights} of {steps} steps, anything else in {others} of {steps}"


def _skewed(rows: Iterable[Row]) -> Iterator[str]:
    return (f"class {row.config_class} {gain(row.log_ratio)}" for row in rows
            if "skew" in row.config_class.lower())
