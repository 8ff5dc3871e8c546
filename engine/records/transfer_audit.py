"""How much of a gain carries over to real training or serving.

A benchmark repeats its calls with the same tensors. A gain inside the kernel (K1-K4) carries over
as measured, one from a weight cache (W1) only for the calls that hit the cache, and one from
recognising other tensors (W2, W3) not at all. A round's change is checked, a campaign's headline
audited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.decoded.recorded import verdict_of
from engine.records import measured as measured_words
from harness.formats import quantities
from harness.verdict import Transfer, Verdict

CALLS_PER_STEP = 2
"""A training step calls forward and backward; a trace counts the hits of each step."""
UNTRACED = math.log(1.015)
"""The most that an untraced weight cache counts for: about 1.5 % of a step."""
INFLATION = 0.01
"""A headline that exceeds the believed gain by more than this is inflated."""
EXACT = 1e-9
NOT_ATTRIBUTED = "not attributed"
_SKEWED = re.compile(r"skew(?!\w*\s*(?:<=|=)\s*0\b)", re.IGNORECASE)
"""Found in the name of a class of skewed shapes; `skew<=0` names the other classes."""


class TransferCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one verdict; `measured` and `real` are ln(before / after), None if not timed."""

    audit: Transfer | None
    measured: float | None
    real: float | None
    derivation: str
    upper: float = 0.0
    """How far the interval extends above `measured`."""
    skewed: tuple[str, ...] = ()
    """The gains of classes with skewed shapes."""
    is_uncertain: bool = False
    """Whether the measured interval includes no gain."""

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

    @property
    def skew(self) -> str:
        """What the change assumes of the sizes of groups, and the gains of skewed classes."""
        assumed = "; ".join(self.audit.skew) if self.audit else ""
        return "; ".join([assumed or "no assumption about group sizes was found", *self.skewed])

    @property
    def hit_rate(self) -> str:
        """How many steps hit a cache of weights, or of anything else."""
        steps = None if self.audit is None else self.audit.hit_rates
        if not steps:
            return "no cache, nothing to hit" if steps is None else "not traced"
        weights, others = (sum(getattr(step, name) > 0 for step in steps)
                           for name in ("weight_hits", "other_hits"))
        return f"weights hit in {weights} of {len(steps)} steps, other caches in {others} of " \
            f"{len(steps)}"


class KeptRound(msgspec.Struct, frozen=True, kw_only=True):
    """A kept change, with its round and its check."""

    round: int
    commit: str
    check: TransferCheck


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The believed part of a headline; all gains are ln(before / after)."""

    kept: tuple[KeptRound, ...]
    headline: float | None
    low: float | None = None
    high: float | None = None

    @property
    def s_real(self) -> float:
        """The gains of the kernel itself."""
        return self._sum("K")

    @property
    def w_real(self) -> float:
        """The bounded gains of weight caches."""
        return self._sum("W1")

    @property
    def summed(self) -> float:
        """The sum of the gains that carry over."""
        return self.s_real + self.w_real

    @property
    def believed(self) -> float:
        """The gain that carries over; never more than was measured."""
        return self.summed if self.headline is None else min(self.summed, self.headline)

    @property
    def inflation(self) -> float | None:
        """The share by which the headline exceeds the sum of the gains that carry over."""
        return None if self.headline is None else math.expm1(self.headline - self.summed)

    @property
    def is_inflated(self) -> bool:
        """Whether the headline exceeds `summed` by more than INFLATION and than noise explains."""
        return self._exceeds and not self._may_be_noise

    @property
    def _exceeds(self) -> bool:
        return self.inflation is not None and self.inflation > INFLATION + EXACT

    @property
    def _may_be_noise(self) -> bool:
        """Whether the errors of the headline and of the rounds, independent of each other, explain
        the gap.
        """
        headline = self.headline or 0.0
        errors = [headline - (headline if self.low is None else self.low), *(
            kept.check.upper for kept in self.kept if kept not in self.overfit)]
        return headline - self.summed <= math.hypot(*errors)

    @property
    def overfit(self) -> tuple[KeptRound, ...]:
        """Kept changes whose gain does not carry over at all."""
        return tuple(kept for kept in self.kept if kept.check.decision == "REJECT-as-overfit")

    @property
    def unaudited(self) -> tuple[KeptRound, ...]:
        return tuple(kept for kept in self.kept if kept.check.audit is None)

    @property
    def attributed(self) -> bool:
        """Whether any kept change was audited."""
        return len(self.unaudited) < len(self.kept)

    def _sum_text(self, value: float) -> str:
        return quantities.gain(value) if self.attributed else NOT_ATTRIBUTED

    def _sum(self, bucket: str) -> float:
        return math.fsum(kept.check.real or 0.0 for kept in self.kept
                         if kept.check.audit and kept.check.bucket.startswith(bucket)
                         and kept not in self.overfit)

    def items(self) -> Iterator[str]:
        """Yield each kept change in words."""
        for kept in self.kept:
            check = kept.check
            yield f"round {kept.round}, {kept.commit[:12]}: " \
                f"{'; '.join([check.bucket, *check.cache_keys])}; benchmark gain " \
                f"{quantities.gain(check.measured)}; estimated real gain " \
                f"{quantities.gain(check.real)}: {check.derivation}; {check.decision}"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the gains sum up to, by name."""
        return [("S_real (kernels: K1-K4)", self._sum_text(self.s_real)),
                ("W_real (caches of weights, bounded: W1)", self._sum_text(self.w_real)),
                ("R_real (over-fitted to the benchmark: W2, W3)", quantities.gain(0.0)),
                ("real-training equivalent (S_real and W_real, at most the headline)",
                 self._sum_text(self.believed)),
                ("headline, best against baseline",
                 quantities.gain(self.headline, self.low, self.high)),
                ("inflation gap", self.inflation_verdict())]

    def inflation_verdict(self) -> str:
        """Return the inflation gap and whether the headline is inflated."""
        gap = self.inflation
        if gap is None:
            return "not known: the best was not measured against the baseline"
        if not self.attributed:
            return f"{NOT_ATTRIBUTED}: no kept change was audited"
        share = f"{gap:+.1%}" if abs(gap) >= 0.0005 else "0.0%"
        if self.is_inflated:
            return f"{share}: the headline is inflated"
        if self._exceeds:
            return f"{share}: not inflated, noise explains the gap"
        if gap < -INFLATION:
            return f"{share}: the rounds add up to more than the headline; only the headline counts"
        return f"{share}: not inflated"

    def advice(self) -> Iterator[str]:
        """Yield what a person should do, one action a line."""
        for kept in self.overfit:
            yield f"roll back round {kept.round}, commit {kept.commit[:12]}: it is over-fitted " \
                  "to the benchmark and was kept nevertheless"
        if self.is_inflated and self.unaudited:
            rounds = ", ".join(dict.fromkeys(str(kept.round) for kept in self.unaudited))
            yield f"review rounds {rounds} by hand: no audit shows what they cache between " \
                  "calls, so their gains are not counted"
        elif self.is_inflated and not self.overfit:
            yield "the gap comes from the benchmark's repeated calls, which training does not " \
                  "make: report the real-training equivalent, or roll back the rounds that cause it"


def of(past: CampaignHistory) -> Audit:
    """Attribute the gain of the best commit to the kept changes."""
    kept = tuple(KeptRound(round=keep.round, commit=keep.commit,
                           check=check(verdict_of(past.verdicts[keep.verdict])))
                 for keep in past.standing if keep.verdict in past.verdicts)
    row = measured_words.of_headline(past)
    if row is None or row.speedup is None:
        return Audit(kept=kept, headline=None)
    value, low, high = (None if bound is None else math.log(bound)
                        for bound in (row.speedup, row.low, row.high))
    return Audit(kept=kept, headline=value, low=low, high=high)


def check(verdict: Verdict) -> TransferCheck:
    """Estimate how much a verdict's gain is worth outside its benchmark."""
    audit = verdict.transfer
    measured = None if verdict.speedup is None else math.log(verdict.speedup)
    real, why = (measured, "not audited; as measured") if audit is None else \
        _estimate(audit, measured)
    return TransferCheck(audit=audit, measured=measured, real=real, derivation=why,
                         is_uncertain=(verdict.speedup_low or math.inf) <= 1.0
                         <= (verdict.speedup_high or 0.0),
                         upper=0.0 if measured is None or not verdict.speedup_high else
                         math.log(verdict.speedup_high) - measured,
                         skewed=tuple(f"class {row.config_class} {measured_words.gain(row)}"
                                      for row in verdict.rows
                                      if _SKEWED.search(row.config_class)))


def of_round(past: CampaignHistory, n: int) -> list[tuple[str, TransferCheck]]:
    """Return the checks of a round's kept candidates; without any, of the fastest correct
    candidate, else of the first audited one.
    """
    judged = past.verdicts_of(n)
    kept = [pair for pair in judged if pair[0] in past.keeps]
    audited = [pair for pair in judged if verdict_of(pair[1]).transfer is not None]
    shown = kept or past.judged(n)[:1] or audited[:1]
    return [(decision.candidate, check(verdict_of(row))) for decision, row in shown]


def _estimate(audit: Transfer, measured: float | None) -> tuple[float | None, str]:
    if audit.bucket in ("W2", "W3") or audit.decision == "REJECT-as-overfit":
        return 0.0, "the tensors that it recognises do not recur in real use, so it gains nothing"
    if measured is None:
        return None, "it was not timed"
    if audit.bucket != "W1":
        doubt = ", if group sizes are as it assumes" if audit.skew else ""
        return measured, f"{audit.bucket}: every call gains as much as in the benchmark{doubt}"
    steps = audit.hit_rates or ()
    if not steps:
        return min(measured, UNTRACED), \
            f"W1, not traced: the cost of preparing a weight, at most {quantities.gain(UNTRACED)}"
    hits = sum(step.weight_hits > 0 for step in steps)
    share = hits / (CALLS_PER_STEP * len(steps))
    real = -math.log(1 - share + share * math.exp(-measured))
    return min(measured, real), (
        f"W1: weights hit in {hits} of {len(steps)} steps of {CALLS_PER_STEP} calls, so "
        f"{share:.0%} of the calls are as fast as measured; at most the cost of preparing a weight")
