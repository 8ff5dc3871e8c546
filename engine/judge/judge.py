"""Turn a verdict into a ruling: keep, ask, tie, regression or reject, with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from engine.repository.patches.hygiene import Violation
from harness.formats import quantities
from harness.timing.outcome import SURE, describe_row
from harness.timing.stats import Estimate
from harness.verdict import (
    BLIND_CHECK,
    BUSY,
    HELD_OUT,
    KERNEL_TIME,
    NO_PROFILER,
    OWN_TIMES,
    Row,
    Verdict,
)

Kind = Literal["keep", "ask", "tie", "regression", "reject"]
UNSPLIT_LOSS = 0.05
"""A candidate that makes a class slower by this share or more is rejected; a split may still keep
its gain."""
ASTONISHING = 2.0
"""With the approval policy `flagged`, a larger speedup needs a person's approval."""
ASKED_ONCE = (NO_PROFILER, OWN_TIMES)
"""Audit rules about the machine: after a person's first approval they raise no more doubts."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest's rules for a keep: when to ask, and which loss of a class is tolerable.

    `has_answer`: a person has approved, or has been asked about, a gain of this campaign without
    kernel time, so that further gains without it raise no doubt. `is_check_blind`: the benchmark's
    check passed on a copy that computes nothing, so that a person must look at every gain.
    """

    approval: Literal["auto", "review", "flagged"] = "flagged"
    margin: float = 0.01
    tolerance: float = 0.01
    has_answer: bool = False
    is_check_blind: bool = False


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's decision on a candidate. `doubts` are the reasons to ask a person."""

    kind: Kind
    reason: str
    doubts: tuple[str, ...] = ()
    near_gain: float | None = None
    """The share by which a tie is faster that is not kept only because this may be noise."""


def rule(verdict: Verdict, policy: Policy, *, violations: Sequence[Violation] = ()) -> Ruling:
    """Judge one verdict.

    A candidate is kept when it is correct, some class is faster, the gain over all classes is
    significant, no class loses more than the tolerance, and no doubt needs a person. The config
    classes that a hypothesis aims at play no part: the campaign's error rate is spent on the gain
    over all classes, and a gain in an unexpected class is still a gain.
    """
    if rejected := breach(violations):
        return rejected
    if not verdict.valid:
        return Ruling(kind="reject", reason=verdict.rejected_reason or "invalid")
    if verdict.not_judged:
        return Ruling(kind="tie", reason=f"not judged here: {verdict.not_judged}")
    if not verdict.correct:
        wrong = next((f"class {row.config_class}: {row.note or 'differs from the reference'}"
                      for row in verdict.rows if not row.correct), "differs from the reference")
        return Ruling(kind="reject", reason=f"wrong result: {wrong}")
    if findings := [finding for finding in verdict.audit if finding.severity == "reject"]:
        return Ruling(kind="reject", reason=f"audit: {findings[0].detail}")
    if verdict.effort == "quick":
        return Ruling(kind="tie", reason="a quick verdict cannot lead to a keep")
    if verdict.latency_kind == "predicted":
        return Ruling(kind="tie", reason="predicted, not timed: nothing is kept on a prediction")
    if all(row.latency_us is None for row in verdict.rows):
        causes = [note for note in verdict.notes if not note.startswith(BUSY)]
        return Ruling(kind="tie", reason=causes[-1] if causes else "not timed")
    return _weigh(verdict, policy, violations)


def breach(violations: Sequence[Violation]) -> Ruling | None:
    """Return the reject of a patch that breaks a rule, or None; files outside `edit` break none."""
    for violation in violations:
        if violation.kind != "outside":
            return Ruling(kind="reject", reason=f"{violation.path} {violation.detail}")
    return None


def _weigh(verdict: Verdict, policy: Policy, violations: Sequence[Violation]) -> Ruling:
    """Rule on a correct, timed candidate by its gains and losses."""
    speedup, rows = describe_speedup(verdict), describe_rows(verdict.rows)
    no_gain: Kind = "regression" if regressed(verdict, policy.margin) else "tie"
    is_uncertain = quantities.is_uncertain(
        verdict.speedup, verdict.speedup_low, verdict.speedup_high)
    if no_gain == "regression" and is_uncertain:
        slower_first = sorted(verdict.rows, key=_sure_loss, reverse=True)
        rows = f"a class is slower at an error rate of 5 %: {describe_rows(slower_first)}"
    near = _near_gain(verdict, policy.margin)
    note = f"near gain of {quantities.percent(near, 1)}, not sure; " if near else ""
    tells_nothing = is_uncertain and \
        (verdict.speedup_high or 0.0) > quantities.WIDE * (verdict.speedup_low or 0.0)
    busy = f"; {_busy(verdict)}" if tells_nothing and _busy(verdict) else ""
    measured = f"{speedup}; {note}{rows}{busy}"
    if lacks_profiler(verdict):
        measured += "; kernel time was not available, the benchmark's own times decide"
    worst = max(map(_sure_loss, verdict.rows), default=0.0)
    if not any(row.outcome == "faster" for row in verdict.rows):
        return Ruling(kind=no_gain, reason=measured, near_gain=near)
    if worst >= UNSPLIT_LOSS:
        loss = core_loss(verdict.rows) or f"a class loses {worst:.1%}"
        return Ruling(kind="reject", reason=f"{loss}; needs a split ({measured})")
    if (verdict.speedup_low or 0.0) <= 1.0:
        return Ruling(kind=no_gain, near_gain=near, reason=measured if near else
                      f"no significant gain over all classes: {measured}")
    if doubts := _doubts(verdict, policy, violations, worst):
        return Ruling(kind="ask", reason=measured, doubts=doubts)
    return Ruling(kind="keep", reason=measured)


def _busy(verdict: Verdict) -> str:
    """Return the note that the machine was busy, if the verdict has one."""
    return next((note for note in verdict.notes if note.startswith(BUSY)), "")


def _near_gain(verdict: Verdict, margin: float) -> float | None:
    """Return the share by which a candidate is faster if that is a near gain, else None.

    A wide interval tells too little, unless the machine was busy: another time may tell more.
    """
    value, low, high = verdict.speedup or 1.0, verdict.speedup_low, verdict.speedup_high
    is_open = low is not None and high is not None and low <= 1 and (
        high <= quantities.WIDE * low or bool(_busy(verdict)))
    is_lost = any(row.outcome == "slower" for row in verdict.rows)
    return value - 1 if is_open and not is_lost and value >= 1 + margin else None


def regressed(verdict: Verdict, margin: float) -> bool:
    """Return whether a candidate is slower by more than the margin, and one class surely so."""
    slower = verdict.speedup is not None and verdict.speedup < 1 / (1 + margin)
    return slower and max(map(_sure_loss, verdict.rows), default=0.0) > margin


def needs_split(verdict: Verdict) -> bool:
    """Return whether the config classes of a correct candidate with a clean audit diverge clearly.

    Clearly means that `harness.timing.outcome` calls one class `faster` and another `slower`: by
    at least the manifest's margin (1 %), the gain at the verdict's share of the campaign's error
    rate, the loss at 5 %. The threshold is not UNSPLIT_LOSS, the loss at which a gain is never kept
    without a split: a candidate that gains 20 % in one class and loses 3 % in another often has no
    significant gain over all classes, and a split is the only way to keep its gain. The split
    decisions in recorded journals were made with this threshold.
    """
    clean = verdict.correct and verdict.effort != "quick" and not any(
        finding.severity == "reject" for finding in verdict.audit)
    return clean and {"faster", "slower"} <= {row.outcome for row in verdict.rows}


def lacks_profiler(verdict: Verdict) -> bool:
    """Return whether the audit says that no tool on the machine measures kernel time."""
    return any(finding.rule == NO_PROFILER for finding in verdict.audit)


def asks_once(verdict: Verdict) -> bool:
    """Return whether a gain lacks kernel time for a reason that holds for the whole campaign."""
    return any(finding.rule in ASKED_ONCE for finding in verdict.audit)


def core_loss(rows: Sequence[Row]) -> str:
    """Return which core class significantly loses UNSPLIT_LOSS or more, or ""."""
    for row in rows:
        if row.core and (loss := _sure_loss(row)) >= UNSPLIT_LOSS:
            return f"core class {row.config_class} loses {loss:.1%}"
    return ""


def _doubts(verdict: Verdict, policy: Policy, violations: Sequence[Violation],
            worst_loss: float) -> tuple[str, ...]:
    doubts = []
    if policy.approval == "review":
        doubts.append("every keep is reviewed")
    if policy.is_check_blind:
        doubts.append(f"{BLIND_CHECK}: it cannot tell wrong results")
    if worst_loss > policy.tolerance:
        doubts.append(f"a class loses {worst_loss:.1%}")
    flags = [finding for finding in verdict.audit if finding.severity == "flag"
             and (policy.approval == "flagged" or finding.rule in (KERNEL_TIME, HELD_OUT))
             and not (policy.has_answer and finding.rule in ASKED_ONCE)]
    doubts += [f"audit: {finding.detail}" for finding in flags]
    if policy.approval == "flagged":
        doubts += [f"edits {violation.path}, outside the kernel" for violation in violations]
        if (verdict.speedup or 0.0) > ASTONISHING:
            doubts.append(f"{quantities.speedup(verdict.speedup)} is more than {ASTONISHING:g}x")
    return tuple(doubts)


def _sure_loss(row: Row) -> float:
    """Return the share by which a class is slower, 0 if that is not significant at 5 %."""
    if row.log_ratio is None or row.stderr is None or row.pairs < 2 or row.log_ratio >= 0:
        return 0.0
    estimate = Estimate(mean=row.log_ratio, stderr=row.stderr, low=0.0, high=0.0, pairs=row.pairs,
                        alpha=SURE)
    return math.expm1(-row.log_ratio) if estimate.at(SURE)[1] < 0 else 0.0


def describe_speedup(verdict: Verdict) -> str:
    """Return `1.42x [1.38, 1.46]`, or that nothing was measured."""
    return quantities.speedup(verdict.speedup, verdict.speedup_low, verdict.speedup_high) \
        or "not measured"


def describe_rows(rows: Sequence[Row]) -> str:
    """Return each class with its outcome: `tall 12.3% faster, odd tie`.

    A tie whose interval is above zero has a reason, which is its note.
    """
    return ", ".join(
        f"{row.config_class} {describe_row(row)}"
        + (f" ({row.note})" if row.outcome == "tie" and (row.low or 0.0) > 0 and row.note else "")
        for row in rows)
