"""The rows of the journal's tables. Times are seconds since the epoch; texts are never markup."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar, get_args

import msgspec

from engine.task import AgentProgress, SlotKind, Task
from harness.verdict import Config, Correctness, LatencyKind, Tag

T = TypeVar("T")
CampaignState = Literal["new", "running", "paused", "waiting", "finished", "stopped", "failed"]
CandidateState = Literal["captured", "verified", "waiting", "provisional", "keeping", "kept",
                         "closed"]
RoundOutcome = Literal["keep", "waiting", "tie", "regression", "failed", "baseline"]
ControlVerb = Literal["approve", "reject", "pause", "resume", "stop", "set"]

COMMITTED: tuple[CandidateState, ...] = ("waiting", "provisional", "keeping", "kept")
"""States of candidates that are commits of the campaign's branch or of its waiting line."""

Phase = Literal["PREPARE_ENVIRONMENT", "READ_HISTORICAL_TIPS", "BASELINE", "ANALYZE", "OPTIMIZE",
                "VALIDATE", "REPORT"]


def in_phase(phase: Phase, detail: str = "") -> str:
    """Return a phase as a campaign's row and events record it: `ANALYZE: round 2`."""
    return f"{phase}: {detail}" if detail else phase


def phase_of(text: str) -> Phase | None:
    """Return the phase that a campaign's text begins with, None for a pause or an older text."""
    name = text.partition(":")[0]
    return next((phase for phase in get_args(Phase) if phase == name), None)


def with_doubt(reason: str, doubt: str) -> str:
    """Return a reason and the doubt about the best as one text."""
    return reason if doubt in reason else f"{reason}; {doubt}".removeprefix("; ")


class JournalRow(msgspec.Struct, frozen=True):
    """A row of the table that its class names; its fields are the columns."""

    TABLE: ClassVar[str]


class Campaign(JournalRow, frozen=True, kw_only=True):
    """One campaign, with its headline: the best measured against the baseline."""

    TABLE = "campaigns"
    id: str
    path: str
    op: str
    backend: str
    lang: str
    gpu: str
    device: str
    project: str
    base_commit: str
    best_commit: str
    state: CampaignState
    phase: str = ""
    reason: str = ""
    round: int = 0
    rounds_max: int | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    doubt: str = ""
    """Why the best has not passed its final acceptance; "" if it has."""

    @property
    def outcome(self) -> str:
        """Why the campaign ended or waits, with the doubt about its best."""
        return with_doubt(self.reason, self.doubt)

    @property
    def iteration_place(self) -> str:
        """The iteration: `baseline` in round 1, `1 of 4` in round 2 if 4 is the limit."""
        if self.round == 1:
            return "baseline"
        done, limit = max(0, self.round - 1), (self.rounds_max or 0) - 1
        # submitted patches may take rounds beyond the limit
        return f"{done} of {limit}" if 0 < done <= limit else str(done)


class Round(JournalRow, frozen=True, kw_only=True):
    TABLE = "rounds"
    campaign: str
    n: int
    scope: str
    """The config class that all its slots were planned for, else GLOBAL."""
    incumbent: str
    started_at: float
    ended_at: float | None = None
    outcome: RoundOutcome | None = None
    summary: str = ""
    best_speedup: float | None = None
    """The campaign's best against the baseline when the round ended."""
    spent_s: float = 0.0
    """Seconds of all engines that worked on it, without pauses."""
    trials: int = 0
    cost: float = 0.0
    """Declared cost of the attempts that it started, in the manifest's unit."""


class Slot(JournalRow, frozen=True, kw_only=True):
    """A slot of a round; progress overwrites `stage`, `detail`, `progress` and `agent`."""

    TABLE = "slots"
    campaign: str
    round: int
    slot: str
    kind: SlotKind
    backend: str
    hypothesis: str = ""
    bottleneck: str = ""
    device: str = ""
    stage: str = "queued"
    detail: str = ""
    progress: float | None = None
    candidate: str = ""
    started_at: float | None = None
    """When its present stage began."""
    updated_at: float = 0.0
    scope: str = ""
    """The config classes that its work is about, or GLOBAL; "" if an older kopt recorded none."""
    option: str = ""
    """What its backend uses: a template's name, a patch's path, a command's name."""
    knobs: tuple[str, ...] = ()
    """The knobs that its search moves; () for all of them, or where there is no search."""
    idea: str = ""
    """The key of the strategy or suggested idea that it follows, "" if none."""
    limiter: str = ""
    """The limit of the incumbent that its work is aimed at."""
    config_class: str = ""
    """The config class with that limit."""
    subagent: str = ""
    """The subagent whose system prompt its model works with, "" if no model works on it."""
    agent: AgentProgress | None = None
    """How far its model got, None if no model has worked on it."""


class Candidate(JournalRow, frozen=True, kw_only=True):
    """A captured patch. `id` is a hash of base tree and patch; the patch is a stored file."""

    TABLE = "candidates"
    campaign: str
    id: str
    round: int
    slot: str
    base_commit: str
    base_tree: str
    patch_path: str
    patch_sha256: str
    hypothesis: str
    bottleneck: str
    state: CandidateState
    created_at: float
    commit: str = ""
    reason: str = ""
    form_of: str = ""
    """The candidate that it is another form of: rebased on another base, or formatted."""
    left_out: str = ""
    """Files of the worker's change that are not in the patch, and why."""
    cut: str = ""
    """Why its worker was stopped before it was done."""
    scope: str = ""
    """The config classes that its task is about, or GLOBAL; "" where no task is recorded."""


class CandidateTask(JournalRow, frozen=True, kw_only=True):
    """The task that a worker's candidate came from."""

    TABLE = "tasks"
    campaign: str
    candidate: str
    task: Task


class TrialRow(JournalRow, frozen=True, kw_only=True):
    """One trial of a slot's search: a screening value, never a verdict."""

    TABLE = "trials"
    id: int
    campaign: str
    round: int
    slot: str
    number: int
    config: Config
    tag: Tag
    correctness: Correctness
    latency_us: float | None
    latency_kind: LatencyKind | None
    pct_of_roofline: float | None
    candidate_id: str
    kernel_id: str
    reason: str
    at: float


class Bottleneck(JournalRow, frozen=True, kw_only=True):
    """One limit of the incumbent: where it is, what limits it, and advice for relieving it."""

    TABLE = "bottlenecks"
    campaign: str
    round: int
    rank: int
    id: str
    kernel: str
    config_class: str
    limiter: str
    metric: str
    value: float | None
    detail: str
    advice: str


class Event(JournalRow, frozen=True, kw_only=True):
    """One entry of the append-only log. `payload` is a small JSON object, `ref` its subject."""

    TABLE = "events"
    seq: int
    campaign: str
    at: float
    kind: str
    ref: str
    payload: bytes

    def decoded(self, into: type[T]) -> T:
        """Return the payload as a value of a type."""
        return msgspec.json.decode(self.payload, type=into)


class Control(JournalRow, frozen=True, kw_only=True):
    """A person's request to a campaign's engine and, once applied, its outcome."""

    TABLE = "controls"
    id: int
    campaign: str
    verb: ControlVerb
    candidate: str
    expected_base: str
    expected_verdict: int | None
    by: str
    at: float
    applied_at: float | None = None
    outcome: str = ""
