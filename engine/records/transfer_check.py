"""Estimates how much of a gain carries over to real training or serving, by rule 11 of seed 003.

A benchmark repeats its calls with the same tensors. A gain inside the kernel (K1-K4) carries over
as measured, one from a weight cache (W1) only for the calls that hit the cache, and one from
recognising other tensors (W2, W3) not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from engine.history.history import CampaignHistory
from engine.judge.recorded_values import verdict_of
from harness.formats import quantities
from harness.verdict import Transfer, Verdict

CALLS_PER_STEP = 2
"""A training step calls forward and backward; a trace counts the hits of each step."""
UNTRACED = math.log(1.015)
"""The most that an untraced weight cache counts for: about 1.5 % of a step."""


class TransferCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one verdict; `measured` and `real` are ln(before / after), None if not timed."""

    audit: Transfer | None
    measured: float | None
    real: float | None
    derivation: str
    skewed: tuple[str, ...] = ()
    """The gains of classes with skewed shapes."""

    @property
    def bucket(self) -> str:
        return self.audit.bucket if self.audit else "not audited"

    @property
    def cache_keys(self) -> tuple[str, ...]:
        return self.audit.cache_keys if self.audit else ()

    @property
    def decision(self) -> str:
        """The audit's decision; a gain without an audit is accepted with an asterisk."""
        return self.audit.decision if self.audit else "ACCEPT-with-asterisk"

    def lines(self, *, kept: bool) -> Iterator[str]:
        """Yield the section of a round's summary, one fact a line."""
        yield f"bucket: {self.bucket}"
        if self.audit is None:
            yield "cache key, id audit, hit rate: unknown, since the audit could not tell or " \
                  "the verdict ended before it"
        else:
            yield f"cache key: {'; '.join(self.cache_keys) or 'none'}"
            yield f"id audit: {self.audit.id_audit or 'not made'}"
            yield f"hit rate: {_hits(self.audit)}"
        assumed = "; ".join(self.audit.skew) if self.audit else ""
        yield f"skew robustness: {assumed or 'no assumption on the sizes of groups was seen'}" \
            + "".join(f"; {own}" for own in self.skewed)
        yield f"benchmark gain: {quantities.gain(self.measured)}"
        yield f"estimated real gain: {quantities.gain(self.real)}: {self.derivation}"
        if self.audit is None and not kept:
            yield "decision: none: not audited, and rolled back"
        else:
            yield f"decision: {self.decision} " \
                  f"({self.audit.reason if self.audit else 'not audited'})"


def check(verdict: Verdict) -> TransferCheck:
    """Estimate how much a verdict's gain is worth outside its benchmark."""
    audit = verdict.transfer
    measured = None if verdict.speedup is None else math.log(verdict.speedup)
    real, why = (measured, "not audited; as measured") if audit is None else \
        _estimate(audit, measured)
    return TransferCheck(audit=audit, measured=measured, real=real, derivation=why,
                         skewed=tuple(f"class {row.config_class} {quantities.gain(row.log_ratio)}"
                                      for row in verdict.rows
                                      if "skew" in row.config_class.lower()))


def of_round(past: CampaignHistory, n: int) -> list[tuple[str, TransferCheck]]:
    """Return the checks of a round's kept candidates; without any, of the fastest correct
    candidate, else of the first audited one.
    """
    judged = past.verdicts_of(n)
    kept = [pair for pair in judged if pair[0] in past.keeps]
    audited = [pair for pair in judged if verdict_of(pair[1]).transfer is not None]
    shown = kept or past.judged(n)[:1] or audited[:1]
    return [(decision.candidate, check(verdict_of(row))) for decision, row in shown]


def _estimate(found: Transfer, measured: float | None) -> tuple[float | None, str]:
    if found.bucket in ("W2", "W3") or found.decision == "REJECT-as-overfit":
        return 0.0, "the tensors that it recognises do not recur in real use, so it gains nothing"
    if measured is None:
        return None, "it was not timed"
    if found.bucket != "W1":
        doubt = ", if groups are as it assumes" if found.skew else ""
        return measured, f"{found.bucket}: every call gains as the benchmark's calls do{doubt}"
    steps = found.hit_rates or ()
    if not steps:
        return min(measured, UNTRACED), \
            f"W1, not traced: the cost of preparing a weight, at most {quantities.gain(UNTRACED)}"
    hits = sum(step.weight_hits > 0 for step in steps)
    share = hits / (CALLS_PER_STEP * len(steps))
    real = -math.log(1 - share + share * math.exp(-measured))
    return min(measured, real), (
        f"W1: weights hit in {hits} of {len(steps)} steps of {CALLS_PER_STEP} calls, so "
        f"{share:.0%} of the calls are as fast as measured; at most the cost of preparing a weight")


def _hits(found: Transfer) -> str:
    if found.hit_rates is None:
        return "no cache, nothing to hit"
    if not found.hit_rates:
        return "not traced"
    weights, others = (sum(getattr(step, name) > 0 for step in found.hit_rates)
                       for name in ("weight_hits", "other_hits"))
    steps = len(found.hit_rates)
    return f"weights in {weights} of {steps} steps, anything else in {others} of {steps}"
