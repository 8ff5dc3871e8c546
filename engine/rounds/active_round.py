"""The state of the round that runs: the parts it works with and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.history.spending import SpendingMeter
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.lineage.promote import Keeper
from engine.records.writer import Records
from engine.rounds.pool import Pool
from engine.rounds.slots import RoundSlots
from engine.verify.fleet_device import NoDeviceAvailable


@dataclass(kw_only=True)
class ActiveRound:
    """One round between its start and its result. Only the engine thread changes it."""

    context: EngineContext
    keeper: Keeper
    pool: Pool
    records: Records
    meter: SpendingMeter
    n: int
    base: str
    """The best commit when the round began, from which every slot starts."""
    closing: bool = False
    """The campaign ends with this round: no worker begins any more."""
    working: set[str] = field(default_factory=set)
    """Slots whose worker runs or is queued."""
    verifying: dict[str, CandidateTree] = field(default_factory=dict)
    """Candidates that wait for a verdict, by id."""
    gains: list[JudgedCandidate] = field(default_factory=list)
    """Candidates that may be kept, of this engine and of earlier ones."""
    cut_reason: str = ""
    """Why the workers were ended early."""
    no_device: NoDeviceAvailable | None = None
    """Why the campaign ends once everything in flight has finished."""

    @property
    def setup(self) -> Setup:
        return self.context.setup

    @property
    def slots(self) -> RoundSlots:
        return RoundSlots(self.context, self.keeper, self.n)

    @property
    def in_flight(self) -> int:
        """How many candidates are being worked on or judged."""
        return len(self.working) + len(self.verifying)

    @property
    def may_retry(self) -> bool:
        """Whether a slot may still be given its work back."""
        return not self.cut_reason and not self.closing

    def drain(self, cause: NoDeviceAvailable) -> None:
        """Begin no further work: a slot has waited for a device as long as a campaign may."""
        self.no_device = self.no_device or cause
        self.pool.drain()
