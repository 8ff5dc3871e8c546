"""The verdict on one candidate: what was checked, what was measured, and with what certainty.

The dataclasses use `slots`, so that a verdict from an older journal is printed with all fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.errors import refuse

HARNESS_VERSION = "1"

LatencyKind = Literal["measured-gpu", "measured-cpu", "reported", "predicted"]
Correctness = Literal["PASS", "FAIL", "REJECTED"]
"""PASS: correct on every class. FAIL: wrong, crashed or hung. REJECTED: refused before it ran."""
Tag = Literal["kept", "tried", "revert", "rejected"]
"""kept: the new best. tried: correct but no better. revert: wrong. rejected: refused."""
Value = int | float | str
"""The value of a knob."""
Config = dict[str, Value]
"""A configuration: the value of each knob by its name."""
ClassOutcome = Literal["faster", "tie", "slower", "broken", "unmeasured"]
MEASURED: tuple[LatencyKind, ...] = ("measured-gpu", "measured-cpu")
TRUST: dict[LatencyKind, int] = {"measured-gpu": 3, "measured-cpu": 2, "reported": 1,
                                 "predicted": 0}
Severity = Literal["reject", "flag", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One config class of a verdict.

    `log_ratio` is ln(incumbent latency / candidate latency): above zero the candidate is faster.
    `low` and `high` bound it at the verdict's `alpha`; `stderr` is the standard error over `pairs`
    process pairs.
    """

    config_class: str
    correct: bool
    outcome: ClassOutcome = "unmeasured"
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    error_budget_used: float | None = None
    latency_us: float | None = None
    latency_per: str = ""
    """Where a benchmark reports a rate, the unit that takes `latency_us`, such as GB."""
    incumbent_us: float | None = None
    other_us: float | None = None
    """The time that is not scored (of whole calls or of GPU kernels), if both were measured."""
    incumbent_other_us: float | None = None
    log_ratio: float | None = None
    low: float | None = None
    high: float | None = None
    stderr: float | None = None
    pairs: int = 0
    weight: float = 1.0
    core: bool = False
    floor_us: float | None = None
    """The physical floor: a shorter latency is impossible and therefore withheld."""
    roofline_us: float | None = None
    """The time that a call takes at measured peak rates: see `harness.roofline.roofline`."""
    pct_of_roofline: float | None = None
    """100 * roofline_us / latency_us, at most 100."""
    note: str = ""
    shapes: tuple[str, ...] = ()
    """`m=128 n=64`: all config columns of each row of a benchmark in this class, if they are few.
    """

    def __post_init__(self) -> None:
        of_roofline = self.pct_of_roofline
        refuse((not self.correct and self.latency_us is not None,
                "only a correct class has a latency"),
               (of_roofline is not None and of_roofline > 100, "nothing is above the roofline"))


FLOOR = "physical-floor"
"""The rule of a finding that the candidate is faster than physically possible."""
INCUMBENT_FLOOR = "incumbent-floor"
"""The rule of a finding that the incumbent is impossibly fast, so that no speedup is known."""
REFERENCE_LINE = "reference line"
"""Evidence: a latency that is shown beside the candidate's and decides nothing."""
SCORE = "score"
"""The evidence of a benchmark: its score, and how rows count in it."""
COMPILED = "compiled"
"""The kind of evidence that quotes what the compiler said of a kernel."""
LIBRARIES = "libraries"
"""The kind of evidence that names the libraries' versions: "torch 2.11.0, triton 3.6.0"."""
KERNEL_TIME = "kernel-time"
"""The kind of evidence of GPU kernel time, and the rule of a gain that this does not confirm."""
HELD_OUT = "held-out"
"""The kind of evidence, and the rule of a failure, on values that no config class has."""
NO_PROFILER = "no-profiler"
"""The rule of a gain on a machine where the tool that measures kernel time is missing."""
OWN_TIMES = "own-times"
"""The rule of a reported gain on a CPU: only the benchmark's own times support it."""
BUSY = "the machine was busy"
"""How a note begins that more programs ran than the CPU has cores."""
BLIND_CHECK = "the benchmark's check passes on a copy that computes nothing"
"""What a second canary finds out about a benchmark whose check proves nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One audit finding; `reject` rejects the candidate, `flag` asks a person."""

    rule: str
    severity: Severity
    detail: str


TransferBucket = Literal["K1", "K2", "K3", "K4", "W1", "W2", "W3"]
TransferDecision = Literal["ACCEPT-as-real", "ACCEPT-with-asterisk", "REJECT-as-overfit"]

_TRANSFER_SEVERITY: dict[TransferDecision, Severity] = {
    "REJECT-as-overfit": "reject", "ACCEPT-with-asterisk": "flag"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceStep:
    """One step of a trace: the cache hits for weights, and for other tensors."""

    step: int
    weight_hits: int
    other_hits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Whether a gain transfers; `hit_rates` is None without a cache, empty if none was traced."""

    bucket: TransferBucket
    decision: TransferDecision
    reason: str
    cache_keys: tuple[str, ...] = ()
    id_audit: str = ""
    hit_rates: tuple[TraceStep, ...] | None = None
    skew: tuple[str, ...] = ()

    @property
    def remembers(self) -> bool:
        """Return whether the candidate has a cache that its baseline lacks."""
        return self.bucket.startswith("W")

    def finding(self) -> Finding | None:
        """Return the verdict's finding: a rejection, a flag for a person, or None."""
        severity = _TRANSFER_SEVERITY.get(self.decision)
        return severity and Finding(rule="over-fit", severity=severity, detail=self.reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One fact that supports a verdict: a compiler remark, a register count, a clock."""

    kind: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The candidate's cost of a metric (of a rate: the time per unit), `scored` or only shown."""

    metric: str
    value: float
    unit: str
    scored: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelShare:
    """A kernel of a benchmark's run: its launches, and its share of the run's GPU time (0 to 1)."""

    name: str
    launches: int
    mean_us: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of `evaluate`.

    Latencies are microseconds; the overall `latency_us` and `speedup` are weighted geometric means
    over the config classes, `speedup` is incumbent over candidate. Breaking one of the honesty
    rules raises ValueError when a verdict is built.
    """

    valid: bool
    correct: bool = False
    rejected_reason: str | None = None
    not_judged: str = ""
    """Why this machine cannot tell whether a valid candidate is correct, "" if it can."""
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    error_budget_used: float | None = None
    latency_us: float | None = None
    latency_kind: LatencyKind | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    detectable_effect: float | None = None
    rows: tuple[Row, ...] = ()
    pct_of_roofline: float | None = None
    floor_us: float | None = None
    roofline_us: float | None = None
    candidate_id: str = ""
    incumbent_tree: str = ""
    harness_version: str = HARNESS_VERSION
    device: str = ""
    alpha: float | None = None
    effort: Literal["quick", "normal", "thorough"] = "normal"
    """How long was measured; nothing is kept on a quick verdict."""
    wall_s: float = 0.0
    notes: tuple[str, ...] = ()
    audit: tuple[Finding, ...] = ()
    transfer: Transfer | None = None
    """Whether the gain transfers from a benchmark to training or serving."""
    evidence: tuple[Evidence, ...] = ()
    costs: tuple[Cost, ...] = ()
    """The cost of each metric, if a benchmark has several."""
    by_kernel_time: bool = False
    """Whether a benchmark's rows are judged by GPU kernel time; `other_us` is what it reports."""
    kernels: tuple[KernelShare, ...] = ()
    """The longest kernels of the candidate's run, the longest first, if they were measured."""

    @property
    def time_kind(self) -> str:
        """The kind of its latencies in words."""
        per = next((f" per {row.latency_per}" for row in self.rows if row.latency_per), "")
        return "GPU kernel time" if self.by_kernel_time else f"{self.latency_kind or ''}{per}"

    def __post_init__(self) -> None:
        us, of_roofline = self.latency_us, self.pct_of_roofline
        measured_us = us if self.latency_kind in MEASURED else None
        refuse(
            (not self.valid and not self.rejected_reason, "an invalid verdict must say why"),
            (not self.valid and self.correct, "an invalid verdict makes no claim of correctness"),
            (bool(self.not_judged) and (self.correct or not self.valid),
             "nothing is claimed of a candidate that was not judged"),
            (us is not None and not self.correct, "only a correct candidate has a latency"),
            ((us is None) != (self.latency_kind is None), "a latency and its kind come together"),
            (us is not None and not 0 < us < math.inf, "a latency is a positive number"),
            (self.speedup is not None and us is None,
             "only a candidate with a latency has a speedup"),
            (self.correct and not all(row.correct for row in self.rows),
             "correct means correct on every class"),
            (of_roofline is not None and of_roofline > 100, "nothing is above the roofline"),
            (self.latency_kind == "predicted" and self.speedup is not None,
             "a prediction is not a measured speedup"),
            (measured_us is not None and self.floor_us is not None and measured_us < self.floor_us,
             "a latency below the physical floor must be withheld"))


def rejected(reason: str, *evidence: Evidence, candidate_id: str = "", device: str = "",
             notes: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict on a candidate that cannot be judged further."""
    return Verdict(valid=False, rejected_reason=reason, evidence=evidence, notes=notes,
                   candidate_id=candidate_id, device=device)
