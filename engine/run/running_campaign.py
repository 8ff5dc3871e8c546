"""The campaign that an engine runs: its parts, rebuilt when its manifest changes, and its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.history import spending
from engine.history.spending import SpendingMeter
from engine.history.waiting_line import ON_LINE
from engine.journal.records import (
    COMMITTED,
    Campaign,
    CampaignState,
    Candidate,
    in_phase,
    with_doubt,
)
from engine.judge import candidate as candidates
from engine.lineage import headline, provisional, rollback
from engine.lineage.promote import Keeper
from engine.planning.planner import Planner
from engine.records.writer import Records
from engine.rounds.active_round import RoundSlots
from engine.rounds.placing import Placing
from engine.run.controls import ControlHandler
from engine.workers import registry


class RunningCampaign:
    """The components that a run's steps share.

    A `decide_only` run only judges submitted patches and carries out people's requests.
    """

    def __init__(self, context: EngineContext, *, decide_only: bool) -> None:
        self.context, self.decide_only = context, decide_only
        self.controls = ControlHandler(context, decide_only=decide_only)
        self.meter = SpendingMeter(
            self._spend, spending.spent(context.reader.rounds(context.setup.id)),
            running=not decide_only, used_usd=lambda: context.used_usd)
        self.use_setup(context.setup)
        self.before = self.row()
        """The campaign's row when this engine took it over."""
        self.nothing_left_on = ""
        """The commit on which the planner had nothing left to try, "" if there was something."""
        context.on_controls = self._look

    def use_setup(self, setup: Setup) -> None:
        """Rebuild all components after the manifest changes."""
        self.context.use_setup(setup)
        self.records = Records(setup)
        self.keeper = Keeper(self.context, self.records.of_keep)
        self.workers = registry.workers(setup.manifest)
        self.planner = Planner(self.context, self.meter)

    @property
    def setup(self) -> Setup:
        """The campaign with its present limits."""
        return self.context.setup

    def row(self) -> Campaign:
        """Return the campaign's row in the journal."""
        campaign = self.context.reader.campaign(self.setup.id)
        assert campaign is not None
        return campaign

    def waiting_count(self) -> int:
        """Return how many candidates wait for a person."""
        return len(self.context.reader.candidates(self.setup.id, states=("waiting",)))

    def unfinished_rounds(self) -> list[int]:
        """Return the rounds that an engine began and did not end."""
        return [round.n for round in self.context.reader.rounds(self.setup.id)
                if round.ended_at is None and round.n > 1]

    def write_records(self) -> None:
        """Make the campaign's files agree with the journal."""
        self.records.write_all(self.context.reader)

    def set_state(self, state: CampaignState, phase: str, reason: str = "",
                  doubt: str = "") -> None:
        """Record the campaign's state, its phase, the reason, and why the best is in doubt."""
        self.context.writer.set_campaign(
            self.setup.id, kind="campaign.state", state=state, phase=phase, reason=reason,
            doubt=doubt, payload={
                "state": state, "phase": phase, "reason": with_doubt(reason, doubt)})

    def show_phase(self, phase: str) -> Campaign:
        """Show a phase; return the row as it was. A `decide_only` run leaves the state as it is."""
        before = self.row()
        self.set_state(before.state if self.decide_only else "running", phase, before.reason,
                       before.doubt)
        return before

    @contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        """Show a phase during a `with` block, then the earlier one, unless the block raises."""
        before = self.show_phase(phase)
        yield
        self.set_state(before.state, before.phase, before.reason, before.doubt)

    def apply_approvals(self) -> None:
        """Carry out the approvals that have arrived, and measure the headline if one was kept."""
        kept = self.controls.decide(self.keeper)
        if self.controls.decided:
            self.controls.decided = False
            self.end_slots()
            self.records.rewrite()
        if kept:
            self.measure_headline()

    def end_slots(self) -> None:
        """Update each slot's last stage to what became of its candidate after the round."""
        reader, campaign = self.context.reader, self.setup.id
        stages = {(round.n, slot.slot): slot.stage for round in reader.rounds(campaign)
                  for slot in reader.slots(campaign, round.n)}
        for placed in reader.candidates(campaign, states=(*COMMITTED, "verified", "closed")):
            stage = stages.get((placed.round, placed.slot), "")
            if placed.state in COMMITTED:
                self._end_slot(placed, stage, placed.state)
            elif stage in ON_LINE:
                newest = reader.newest_decision(campaign, placed.id)
                self._end_slot(placed, stage, newest.kind if newest else stage)

    def _end_slot(self, placed: Candidate, before: str, stage: str) -> None:
        if before == stage:
            return
        candidate = self._unformatted(placed)
        judged = self.keeper.rulings.judged_before(candidates.load(self.setup, candidate))
        RoundSlots(self.keeper, self.context.round).end_slot_of(
            candidate, stage, placed.reason if judged is None or placed.state not in COMMITTED
            else judged.ruling.reason)

    def _unformatted(self, placed: Candidate) -> Candidate:
        """Return the candidate from before the format command, or itself if there is none."""
        if not placed.form_of:
            return placed
        before = self.context.reader.candidate(placed.form_of, self.setup.id)
        return before if before.base_tree == placed.base_tree else placed

    def measure_headline(self) -> None:
        """Measure the best against the baseline if that is due; roll back if it is not accepted.

        The headline is never a product of gains. A recorded one is not measured again: an engine
        may have been killed between the two steps. At last the provisional best is measured too.
        """
        if headline.due(self.context):
            self.write_records()
            with self.phase(in_phase("VALIDATE", "the best against the baseline")):
                headline.measure(self.context)
        if rollback.reason_not_accepted(self.context):
            with self.phase(in_phase("VALIDATE", "rolling back to the last accepted commit")):
                self.roll_back(ends=False)
        headline.measure_tip(self.context)

    def roll_back(self, *, ends: bool) -> str:
        """Go back to the newest commit that passes; release the gains that rested on the best."""
        reason = rollback.roll_back(self.context, self.planner.may_accept, ends=ends)
        provisional.recover(self.context.writer, self.context.reader, self.setup.repo)
        return reason

    def step_back(self, why: str, *, ends: bool) -> str:
        """Go back by one kept commit, and release the gains that rested on the best."""
        reason = rollback.step_back(self.context, why, ends=ends)
        provisional.recover(self.context.writer, self.context.reader, self.setup.repo)
        return reason

    @property
    def placing(self) -> Placing:
        """Places gains while no round runs."""
        return Placing(RoundSlots(self.keeper, self.context.round), self.records)

    def adopt(self, waited: Sequence[Candidate]) -> None:
        """Put the fastest of the gains that an older kopt left waiting onto the line.

        Rounds try the others.
        """
        setup = self.setup
        tree = setup.repo.tree_of(setup.repo.tip)
        on_tip = [gain for gain in self.placing.judged(waited)
                  if gain.entry.candidate.base_tree == tree]
        self.placing.place(sorted(on_tip, key=lambda gain: -(gain.verdict.speedup or 0.0))[:1])

    def _look(self) -> None:
        """Read controls, record time and stop before a Slurm job ends; runs during every wait."""
        self.controls.look()
        self.meter.beat()
        if self.planner.job_is_over() and not self.controls.stop_reason:
            self.controls.stop_reason = self.planner.job_reason
            self.context.stop.set()

    def _spend(self, seconds: float, trials: int, cost: float) -> None:
        self.context.writer.spend(self.setup.id, max(1, self.context.round), seconds=seconds,
                                  trials=trials, cost=cost)
