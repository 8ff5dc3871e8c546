"""What of a campaign's headline carries over to real training or serving: rule 11 of seed 003."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.records import DecisionRow, VerdictRow
from engine.markdown import gain, line, table
from engine.records.transfer_check import TransferCheck, check

INFLATION = 0.01
"""A headline this much above what is believed is called inflated."""
EXACT = 1e-9
NOT_ATTRIBUTED = "not attributed"
HEAD = ("round", "commit", "bucket", "benchmark gain", "estimated real gain", "decision")


class KeptRound(msgspec.Struct, frozen=True, kw_only=True):
    """A kept round in the audit."""

    round: int
    commit: str
    check: TransferCheck


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What of a headline carries over; all gains are ln(before / after)."""

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
        """The bounded gains of caches of weights."""
        return self._sum("W1")

    @property
    def believed(self) -> float:
        return self.s_real + self.w_real

    @property
    def inflation(self) -> float | None:
        """The share by which the headline is above what is believed."""
        return None if self.headline is None else math.expm1(self.headline - self.believed)

    @property
    def inflated(self) -> bool:
        return self.inflation is not None and self.inflation > INFLATION + EXACT

    @property
    def overfit(self) -> tuple[KeptRound, ...]:
        """Kept rounds that should have been rolled back."""
        return tuple(one for one in self.kept if one.check.decision == "REJECT-as-overfit")

    @property
    def unaudited(self) -> tuple[KeptRound, ...]:
        return tuple(one for one in self.kept if one.check.audit is None)

    @property
    def attributed(self) -> bool:
        """Whether anything says where the gain comes from."""
        return len(self.unaudited) < len(self.kept)

    def _within(self) -> bool:
        return self.low is not None and self.high is not None and \
            self.low <= self.believed <= self.high

    def _told(self, value: float) -> str:
        return gain(value) if self.attributed else NOT_ATTRIBUTED

    def _sum(self, bucket: str) -> float:
        return math.fsum(one.check.real or 0.0 for one in self.kept
                         if one.check.audit and one.check.bucket.startswith(bucket)
                         and one not in self.overfit)

    def lines(self, heading: str) -> Iterator[str]:
        """Yield the audit's section below a heading such as `## Real-training audit`."""
        yield from (heading, "")
        if not self.kept:
            yield from ("Nothing was kept: there is nothing to audit.", "")
            return
        yield from table(HEAD, map(_row, self.kept)).split("\n")
        yield f"- S_real (kernels: K1-K4): {self._told(self.s_real)}"
        yield f"- W_real (caches of weights, bounded: W1): {self._told(self.w_real)}"
        yield "- R_real (over-fitted to the benchmark: W2, W3): 1.00x (+0.0%)"
        yield f"- real-training equivalent (S_real and W_real): {self._told(self.believed)}"
        yield f"- headline, best against baseline: {gain(self.headline)}"
        yield f"- inflation gap: {self.verdict()}"
        yield from (f"- {told}" for told in self.advice())
        yield ""

    def verdict(self) -> str:
        gap = self.inflation
        if gap is None:
            return "not known: the best was not measured against the baseline"
        if not self.attributed:
            return f"{NOT_ATTRIBUTED}: nobody audited what was kept"
        told = f"{gap:+.1%}"
        if self.inflated:
            return f"{told}: the headline is inflated"
        if gap < -INFLATION:
            return f"{told}: the rounds add up to more than the headline, and the headline counts"
        return f"{told}: not inflated"

    def advice(self) -> Iterator[str]:
        """Yield what a person should do about it, one thing a line."""
        for one in self.overfit:
            yield f"roll back round {one.round}, commit {one.commit[:12]}: it is over-fitted to " \
                  "the benchmark and was kept nevertheless"
        if self.inflated and self.unaudited:
            rounds = ", ".join(dict.fromkeys(str(one.round) for one in self.unaudited))
            yield f"look at rounds {rounds} by hand: nobody audited what they remember between " \
                  "calls, so their gains are not counted"
        elif self.inflated and self._within():
            yield "the headline's interval holds the real-training equivalent: noise may be all " \
                  "there is to the gap"
        elif self.inflated and not self.overfit:
            yield "the gap is what a benchmark's loop gives and training does not: ship the " \
                  "real-training equivalent as the gain, or roll back what brings the rest"


def of(past: CampaignHistory) -> Audit:
    """Attribute the gain of the best commit to what was kept."""
    kept = [(d, past.verdicts[d.verdict]) for d in past.standing if d.verdict in past.verdicts]
    found = _headline(past)
    if found is None:
        return Audit(kept=tuple(_kept(kept)), headline=None)
    value, low, high = (None if x is None else math.log(x)
                        for x in (found.speedup, found.low, found.high))
    return Audit(kept=tuple(_kept(kept)), headline=value, low=low, high=high)


def _kept(pairs: Iterable[tuple[DecisionRow, VerdictRow]]) -> Iterator[KeptRound]:
    for decision, row in pairs:
        yield KeptRound(
            round=decision.round, commit=decision.commit, check=check(row.decode())
        )


def _headline(past: CampaignHistory) -> VerdictRow | None:
    """Return the verdict on the best against the baseline."""
    rows = [row for row in past.verdicts.values() if row.purpose == "headline"
            and row.candidate == past.best[:12] and row.speedup is not None]
    return rows[-1] if rows else None


def _row(one: KeptRound) -> tuple[str, ...]:
    return (f"round {one.round}", one.commit[:12], one.check.bucket, gain(one.check.measured),
            gain(one.check.real), line(one.check.decision))
