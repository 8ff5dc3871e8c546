"""What a screen shows at one moment: immutable rows, ready to draw, without markup.

Times are seconds since the epoch. Texts written by workers were stripped of control characters
when the snapshot was built, and are never read as markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from kopt_tui.snapshot import phrases

if TYPE_CHECKING:  # loading the journal's types takes 25 ms of the first paint
    from engine.journal.decoded.patch_review import PatchReview
    from engine.journal.judged_rows import DecisionRow
    from engine.journal.records import Bottleneck, Campaign, Candidate, Control, Slot
    from harness.verdict import Row
    from kopt_tui.snapshot.verdict_words import JudgedVerdict

EngineWord = Literal["alive", "none", "lost"]


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """The process that runs a campaign; `lost` means that it holds the lease but is gone."""

    word: EngineWord = "none"
    host: str = ""
    pid: int = 0
    answers_only: bool = False
    """Whether it only answers a request, and then ends."""


class CampaignRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the campaigns table."""

    campaign: Campaign
    waiting: int
    provisional: str = ""
    """The provisional best in words, "" if nothing waits."""
    trend: tuple[float, ...]
    engine: EngineState = EngineState()
    phase_age: str = ""
    """For how long its engine has been in its phase, "" if no engine works."""
    cost: str = ""
    """What its models have cost so far, "" if none was asked."""
    pauses_soon: bool = False
    """Whether it pauses at the end of its round."""
    how_to_go_on: str = ""
    """What a person can do after it has finished, in words; "" before."""

    @property
    def id(self) -> str:
        return self.campaign.id

    @property
    def target(self) -> str:
        return f"{self.campaign.op} {self.campaign.lang or self.campaign.backend}"

    @property
    def device(self) -> str:
        return self.campaign.device or self.campaign.gpu

    @property
    def status(self) -> str:
        return phrases.state(self.campaign, live=self.engine.word == "alive",
                             answers_only=self.engine.answers_only)


class StreamLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the verdict stream: a verdict with its newest decision, or a decision alone."""

    key: str
    at: float
    slot: str
    candidate: str
    purpose: str
    outcome: str
    speedup: str
    reason: str
    hypothesis: str


class RoundPoint(msgspec.Struct, frozen=True):
    """Best speedup against the baseline after a round; round 0 is the baseline itself."""

    round: int
    best: float
    outcome: str


class ClassTable(msgspec.Struct, frozen=True):
    """The config classes of one verdict, and which verdict it is."""

    title: str
    rows: tuple[Row, ...]
    references: tuple[str, ...] = ()
    """How the best compares with eager PyTorch and torch.compile."""
    is_baseline: bool = False
    """Whether both sides are the baseline, so that a difference is noise."""


class LogLine(msgspec.Struct, frozen=True):
    """One event as a line of text."""

    seq: int
    at: float
    kind: str
    text: str


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that waits for approval, with the verdict that an approval must name."""

    candidate: Candidate
    why: str
    speedup: str
    verdict: int | None
    since: float
    obstacle: str = ""
    """Why it cannot be approved now: its base moved, or it rests on one that waits as well."""
    resting: str = ""
    """The gains that rest on it, in words."""
    review: str = ""
    """The conclusion of a model's review, "" if none was asked for."""
    doubts: str = ""
    """The reasons to ask a person."""
    measured: str = ""
    """The judge's reason without the doubts."""


class SlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of the newest round."""

    slot: Slot
    age: str = ""
    """How long it has been in its stage, "" where it has ended."""
    elapsed: str = ""
    """How long its model has been at work, "" where it has ended or none works."""


class CampaignView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one campaign that its screen draws."""

    row: CampaignRow
    slots: tuple[SlotRow, ...]
    verdicts: tuple[StreamLine, ...]
    chart: tuple[RoundPoint, ...]
    classes: ClassTable | None
    bottlenecks: tuple[Bottleneck, ...]
    plan: str
    """The slots of the newest round by kind, with the weights; "" before the first plan."""
    routing: str
    """Into which languages agents rewrite the kernel, and why not into others."""
    log: tuple[LogLine, ...]


class AttemptRef(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a slot of a round; number 0 stands for the newest."""

    campaign: str
    round: int
    slot: str
    number: int = 0


class CandidateView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one candidate, for its screen and for `kopt show`.

    `missing` says why there is no candidate, `patch_note` why the patch is absent or incomplete.
    """

    campaign: str
    candidate: Candidate | None
    verdicts: tuple[JudgedVerdict, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    controls: tuple[Control, ...] = ()
    waiting: WaitingRow | None = None
    patch: str = ""
    patch_note: str = ""
    missing: str = ""
    attempt: AttemptRef | None = None
    """The worker's attempt that made it."""
    review: PatchReview | None = None
    """A model's review of it."""
    again: str = ""
    """How a near gain is measured again, "" if it is none."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The journal at event `seq`, in the detail that the screen in front needs.

    `problem` says why the journal could not be read; the rest is then the last good state.
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

    def looks_like(self, other: Snapshot | None) -> bool:
        """Return whether a screen would draw both snapshots alike."""
        return other is not None and self == msgspec.structs.replace(
            other, seq=self.seq, at=self.at)

    def row(self, campaign: str) -> CampaignRow | None:
        return next((row for row in self.campaigns if row.id == campaign), None)


class DeviceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One device; `silent_since`: when it stopped answering, `facts` are then the last known."""

    id: str
    name: str
    facts: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    trouble: str = ""
    silent_since: float | None = None


class DeviceSnapshot(msgspec.Struct, frozen=True):
    """All devices of this machine; `problem` says why the list is incomplete."""

    devices: tuple[DeviceLine, ...] = ()
    problem: str = ""


class Focus(msgspec.Struct, frozen=True):
    """What the screen in front needs besides the table of campaigns.

    `requested` names the campaigns with a request of this session that is not yet answered.
    """

    campaign: str = ""
    candidate: str = ""
    requested: tuple[str, ...] = ()
    report: bool = False
