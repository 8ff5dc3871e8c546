"""What a screen shows at one moment of the journal: immutable, display-ready, free of markup.

Times are seconds since the epoch. Texts that workers wrote are data: they were stripped of control
characters when the snapshot was built and are never read as markup.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.journal.records import Bottleneck, Candidate, Control, DecisionRow
from harness.verdict import Row, Verdict

EngineWord = Literal["alive", "none", "lost"]


class Speedup(msgspec.Struct, frozen=True):
    """A ratio of latencies, above 1 faster, with the bounds of its interval if there is one."""

    value: float
    low: float | None = None
    high: float | None = None


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on a campaign: `lost` is a lease whose owner no longer answers."""

    word: EngineWord = "none"
    host: str = ""
    pid: int = 0


class CampaignRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the campaigns table."""

    id: str
    target: str
    lang: str
    device: str
    state: str
    phase: str
    reason: str
    round: int
    rounds_max: int | None
    best: Speedup | None
    waiting: int
    updated_at: float
    created_at: float
    trend: tuple[float, ...]
    project: str
    base_commit: str
    best_commit: str
    engine: EngineState = EngineState()

    @property
    def said(self) -> str:
        """Return the state in a word, "lost" for one that should run but has no engine."""
        return "lost" if self.state == "running" and self.engine.word != "alive" else self.state


class SlotLine(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of the current round."""

    slot: str
    kind: str
    backend: str
    stage: str
    detail: str
    progress: float | None
    device: str
    hypothesis: str
    bottleneck: str
    candidate: str


class StreamLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the verdict stream: a verdict with the newest decision on it, or a decision."""

    key: str
    at: float
    slot: str
    candidate: str
    purpose: str
    outcome: str
    speedup: Speedup | None
    latency_us: float | None
    reason: str
    hypothesis: str


class RoundPoint(msgspec.Struct, frozen=True):
    """Best of the campaign after a round, against the baseline; round 0 is the baseline."""

    round: int
    best: float
    outcome: str


class ClassTable(msgspec.Struct, frozen=True):
    """Config classes of one verdict and which verdict it is."""

    title: str
    rows: tuple[Row, ...]


class LogLine(msgspec.Struct, frozen=True):
    """One event as a line of text."""

    seq: int
    at: float
    kind: str
    text: str


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that waits for a person, with what an approval must expect."""

    campaign: str
    candidate: str
    slot: str
    round: int
    hypothesis: str
    bottleneck: str
    why: str
    speedup: Speedup | None
    verdict: int | None
    base_commit: str
    since: float


class CampaignView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one campaign that its screen draws."""

    row: CampaignRow
    slots: tuple[SlotLine, ...]
    verdicts: tuple[StreamLine, ...]
    chart: tuple[RoundPoint, ...]
    classes: ClassTable | None
    bottlenecks: tuple[Bottleneck, ...]
    log: tuple[LogLine, ...]


class JudgedVerdict(msgspec.Struct, frozen=True):
    """A recorded verdict of a candidate and the harness's full answer, if it could be read."""

    id: int
    purpose: str
    at: float
    verdict: Verdict | None


class CandidateView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one candidate: `missing` says why there is none, `patch_note` why no patch."""

    campaign: str
    candidate: Candidate | None
    verdicts: tuple[JudgedVerdict, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    controls: tuple[Control, ...] = ()
    waiting: WaitingRow | None = None
    patch: str = ""
    patch_note: str = ""
    missing: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The journal at event `seq`, as far as the screen in front wants to see it.

    `problem` is why the journal could not be read; what is shown then is the last good state.
    """

    seq: int = 0
    at: float = 0.0
    campaigns: tuple[CampaignRow, ...] = ()
    waiting: tuple[WaitingRow, ...] = ()
    controls: tuple[Control, ...] = ()
    view: CampaignView | None = None
    candidate: CandidateView | None = None
    report: str = ""
    problem: str = ""

    def same_picture(self, other: Snapshot | None) -> bool:
        """Return whether nothing that a screen draws differs from another snapshot."""
        return other is not None and self == msgspec.structs.replace(
            other, seq=self.seq, at=self.at)

    def row(self, campaign: str) -> CampaignRow | None:
        """Return the line of one campaign."""
        return next((row for row in self.campaigns if row.id == campaign), None)


class DeviceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One device as it was last seen; `silent_since` is set when it stopped answering."""

    id: str
    name: str
    kind: str
    facts: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    trouble: str = ""
    silent_since: float | None = None


class DeviceSnapshot(msgspec.Struct, frozen=True):
    """All devices of this machine; `problem` is why there is no list."""

    devices: tuple[DeviceLine, ...] = ()
    problem: str = ""


class Focus(msgspec.Struct, frozen=True):
    """What the screen in front needs beyond the table of campaigns.

    `asked` names campaigns that were asked something whose outcome is still awaited.
    """

    campaign: str = ""
    candidate: str = ""
    asked: tuple[str, ...] = ()
    report: bool = False
