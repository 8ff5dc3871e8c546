"""From a verdict to a ruling: keep, ask, tie, regression or reject, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from engine.repository.patches.hygiene import Violation
from harness.timing.outcome import SURE
from harness.timing.stats import Estimate
from harness.verdict import KERNEL_TIME, Row, Verdict

Kind = Literal["keep", "ask", "tie", "regression", "reject"]
CORE_LOSS = 0.05
"""A core class that loses this much is never kept unsplit, nor put to a person."""
ASTONISHING = 2.0
"""A speedup above this is put to a person by the policy `flagged`."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest's words on keeping: when to ask, and what loss of a class is bearable."""

    approval: Literal["auto", "review", "flagged"] = "flagged"
    margin: float = 0.01
    tolerance: float = 0.01


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a candidate. `doubts` are why a person is asked."""

    kind: Kind
    reason: str
    doubts: tuple[str, ...] = ()


def rule(verdict: Verdict, policy: Policy, *, violations: Sequence[Violation] = (),
         scope: Sequence[str] = ()) -> Ruling:
    """Judge one verdict; `scope` names the config classes the hypothesis is about (all, if empty).

    A candidate is kept when it is correct, the classes in its scope are faster, none has lost
    beyond the tolerance, and nobody has to be asked. Campaigns name no scope, whatever a round is
    about: their error rate is spent on the gain over all classes, and a gain in another class than
    was aimed at is one too.
    """
    if breaches := breach(violations):
        return breaches
    if not verdict.valid:
        return Ruling(kind="reject", reason=verdict.rejected_reason or "invalid")
    if not verdict.correct:
        return Ruling(kind="reject", reason=f"wrong result: {_first_complaint(verdict)}")
    if found := [f for f in verdict.audit if f.severity == "reject"]:
        return Ruling(kind="reject", reason=f"audit: {found[0].detail}")
    if verdict.latency_kind == "predicted":
        return Ruling(kind="tie", reason="predicted, not timed: nothing is kept on a prediction")
    if all(row.latency_us is None for row in verdict.rows):
        why = verdict.notes[-1] if verdict.notes else "it was not timed"
        return Ruling(kind="tie", reason=why)
    return _weigh(verdict, policy, violations, scope)


def breach(violations: Sequence[Violation]) -> Ruling | None:
    """Return the reject that a patch earns before it is even built, if any."""
    for violation in violations:
        if violation.kind != "outside":
            return Ruling(kind="reject", reason=f"{violation.path} {violation.detail}")
    return None


def _weigh(verdict: Verdict, policy: Policy, violations: Sequence[Violation],
           scope: Sequence[str]) -> Ruling:
    faster = [row for row in verdict.rows if row.outcome == "faster"]
    wanted = [row for row in verdict.rows if row.config_class in scope] or faster
    losses = {row.config_class: _sure_loss(row) for row in verdict.rows}
    worst = max(losses.values(), default=0.0)
    lost: Kind = "regression" if regressed(verdict, policy.margin) else "tie"
    if not faster or any(row.outcome != "faster" for row in wanted):
        return Ruling(kind=lost,
                      reason=f"{describe_speedup(verdict)}; {describe_rows(verdict.rows)}")
    headline = f"{describe_speedup(verdict)}; {describe_rows(verdict.rows)}"
    if lost_core := core_loss(verdict.rows):
        return Ruling(kind="reject", reason=f"{lost_core}; needs a split ({headline})")
    if worst >= CORE_LOSS:
        return Ruling(kind="reject", reason=f"a class loses {worst:.1%}; needs a split "
                      f"({headline})")
    if not scope and (verdict.speedup_low or 0.0) <= 1.0:
        return Ruling(kind=lost, reason=f"no gain over all classes that is sure: {headline}")
    doubts = _doubts(verdict, policy, violations, worst)
    if doubts:
        return Ruling(kind="ask", reason=headline, doubts=doubts)
    return Ruling(kind="keep", reason=headline)


def regressed(verdict: Verdict, margin: float) -> bool:
    """Tell whether a right candidate is slower beyond the margin, and for sure in some class."""
    slower = verdict.speedup is not None and verdict.speedup < 1 / (1 + margin)
    return slower and max(map(_sure_loss, verdict.rows), default=0.0) > margin


def divided(verdict: Verdict) -> bool:
    """Tell whether an honest, right candidate needs a split: a class gains, another loses."""
    honest = verdict.correct and not any(f.severity == "reject" for f in verdict.audit)
    return honest and any(row.outcome == "faster" for row in verdict.rows) and \
        any(_sure_loss(row) >= CORE_LOSS for row in verdict.rows)


def core_loss(rows: Sequence[Row]) -> str:
    """Say which core class loses more, for sure, than one ever may."""
    for row in rows:
        if row.core and (loss := _sure_loss(row)) >= CORE_LOSS:
            return f"core class {row.config_class} loses {loss:.1%}"
    return ""


def _doubts(verdict: Verdict, policy: Policy, violations: Sequence[Violation],
            worst: float) -> tuple[str, ...]:
    doubts = []
    if policy.approval == "review":
        doubts.append("every keep is reviewed")
    if worst > policy.tolerance:
        doubts.append(f"a class loses {worst:.1%}")
    asked = [f for f in verdict.audit if f.severity == "flag"
             and (policy.approval == "flagged" or f.rule == KERNEL_TIME)]
    doubts += [f"audit: {f.detail}" for f in asked]
    if policy.approval == "flagged":
        doubts += [f"edits {v.path}, outside the kernel" for v in violations]
        if (verdict.speedup or 0.0) > ASTONISHING:
            doubts.append(f"{verdict.speedup:.2f}x is more than {ASTONISHING:g}x")
    return tuple(doubts)


def _sure_loss(row: Row) -> float:
    """Return how much slower a class is, as a share, where that is sure at 5 %; else 0."""
    if row.log_ratio is None or row.stderr is None or row.pairs < 2 or row.log_ratio >= 0:
        return 0.0
    value = Estimate(mean=row.log_ratio, stderr=row.stderr, low=0.0, high=0.0, pairs=row.pairs,
                     alpha=SURE)
    return math.expm1(-row.log_ratio) if value.at(SURE)[1] < 0 else 0.0


def describe_speedup(verdict: Verdict) -> str:
    """Return `1.42x [1.38, 1.46]`, or that nothing was measured."""
    if verdict.speedup is None:
        return "not measured"
    if verdict.speedup_low is None or verdict.speedup_high is None:
        return f"{verdict.speedup:.2f}x"
    return f"{verdict.speedup:.2f}x [{verdict.speedup_low:.2f}, {verdict.speedup_high:.2f}]"


def describe_rows(rows: Sequence[Row]) -> str:
    """Return each class with its outcome and change: `tall faster +12.3%, odd tie -0.2%`."""
    return ", ".join(
        f"{row.config_class} {row.outcome}"
        + (f" {math.expm1(row.log_ratio):+.1%}" if row.log_ratio is not None else "")
        for row in rows)


def _first_complaint(verdict: Verdict) -> str:
    for row in verdict.rows:
        if not row.correct:
            return f"class {row.config_class}: {row.note or 'differs from the reference'}"
    return "differs from the reference"
