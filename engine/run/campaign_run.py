"""One engine's run over a campaign: what happens from taking it over to giving it back.

recover → config classes → baseline → canary → rounds (plan → work → verify → judge → keep) → the
whole program → stop summary.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.campaign.setup import Setup
from engine.context import CampaignStopped, EngineContext
from engine.discovery.classes import class_baseline
from engine.history import history, spending
from engine.history.spending import SpendingMeter
from engine.journal.leased_connection import LeaseLost
from engine.journal.records import Campaign, CampaignState, with_doubt
from engine.lineage import deferred, headline, rollback
from engine.lineage.promote import Keeper
from engine.messages import SlotProgress
from engine.planning import survey, tips
from engine.planning.planner import Planner
from engine.records.writer import Records
from engine.rounds.pool import Pool
from engine.rounds.round import RoundRun
from engine.run import baseline, canary_step, end_to_end, recovery
from engine.run.controls import ControlHandler
from engine.task import Task
from engine.verify.fleet import NoDeviceAvailable
from engine.workers import registry
from harness.errors import EnvironmentFault, KoptError, of_os

log = logging.getLogger("kopt.engine")


class CampaignRun:
    """One engine's run over a campaign, from taking it over to giving it back."""

    def __init__(self, context: EngineContext, *, decide_only: bool) -> None:
        self.context, self.decide_only = context, decide_only
        self.controls = ControlHandler(context, since=context.since, decide_only=decide_only)
        self.meter = SpendingMeter(
            self._spend, spending.spent(context.reader.rounds(context.setup.id)),
            running=not decide_only)
        self._work_on(context.setup)
        self.before = self._campaign()
        context.on_controls = self._look

    def _work_on(self, setup: Setup) -> None:
        """Have all parts work with a campaign as its manifest has it now."""
        self.setup = self.context.setup = self.context.verifier.setup = setup
        self.keeper = Keeper(self.context)
        self.records = Records(setup)
        self.workers = registry.workers(setup.manifest)
        self.steering = Planner(self.context, self.meter)

    def go(self) -> None:
        """Carry the campaign on until it stops, and record how it ended."""
        try:
            self.records.start()
            self._recover()
            if self.decide_only:
                self._decide()
                return
            self._state("running", "recovered" if self.before.round else "starting")
            self._baseline()
            if canary_step.due(self.context):
                self._state("running", "canary: a broken copy must not pass")
                canary_step.look(self.context)
            if not self._cut_rounds():  # one that was cut short ends with it
                self._headline()
            self._finish(baseline.untimed(self.context) or self._rounds())
        except CampaignStopped:
            self._cut_short("stopped", self.controls.stop_reason or "stopped in order")
        except LeaseLost:
            raise  # the campaign is another engine's now: nothing of it is ours to say
        except NoDeviceAvailable as error:
            self._cut_short("stopped", str(error))
        except KoptError as error:
            self._cut_short("failed", str(error))
            raise
        except OSError as error:
            fault = of_os(error)
            self._cut_short("failed", str(fault))
            raise fault from error
        except Exception as error:
            self._cut_short("failed", f"internal error: {type(error).__name__}: {error}; "
                            f"see {self.setup.folder.logs / 'engine.log'}")
            raise

    def _recover(self) -> None:
        """Put right what an engine that was killed left: keeps, records, worktrees."""
        recovery.recover(self.context, self.keeper, self._cut_rounds())
        self.setup.repo.remove_all()
        self.setup.folder.remove_parts()
        self.records.agree(self.context.reader)

    def _cut_short(self, state: CampaignState, reason: str) -> None:
        """Record an end that is not the campaign's own; a short host leaves it as it was."""
        if self.decide_only:
            self._state(self.before.state, self.before.phase, self.before.reason,
                        rollback.doubt(self.context))
            return
        try:
            self._end(state, reason, cut=True)
        except (OSError, EnvironmentFault) as error:
            log.warning("no stop summary: %s", error)
            self._state(state, "", reason)

    def _end(self, state: CampaignState, reason: str, *, cut: bool = False) -> None:
        """Record the stop with what was spent until then, and write the Stop Summary.

        One that was `cut` short has not said what else the campaign may have come to.
        """
        doubt = rollback.doubt(self.context)
        self.meter.note()
        spent = self.meter.spent
        with self.context.writer.transaction():
            self.context.writer.event(
                self.setup.id, "campaign.stop", self.setup.repo.best, reason=reason,
                doubt=doubt, wall_s=spent.wall_s, trials=spent.trials, cost=spent.cost,
                waiting=self._waiting(),
                **({rollback.CUT: True} if cut else {}))
            self._state(state, "", reason, doubt)
        self.records.agree(self.context.reader)

    def _decide(self) -> None:
        """Carry out what people decided on a campaign that no engine runs; it stays as it was."""
        before = self.before
        self.context.round = before.round
        self.controls.look()
        self._between()
        self._headline()  # an engine before this one may have kept what it could not measure
        self._accept()
        tips.learn(self.context)
        state, over = before.state, before.state in ("waiting", "finished")
        if over:
            deferred.ask_next(self.keeper)
            self._end_to_end()
            state = "waiting" if self._waiting() else "finished"
        if (over or state in ("stopped", "failed")) and \
                not end_to_end.stopped(self.context, self._waiting()):
            self._end(state, before.reason, cut=not over)
            return
        self._state(state, before.phase, before.reason, rollback.doubt(self.context))
        self.records.agree(self.context.reader)

    def _waiting(self) -> int:
        return len(self.context.reader.candidates(self.setup.id, states=("waiting",)))

    def _baseline(self) -> None:
        """Measure the unmodified code, against itself: its latency, and this machine's noise."""
        self.context.round = max(1, self.before.round)  # what is approved now is of the last round
        if baseline.recorded(self.context) is not None:
            return
        tips.read_before_baseline(self.context)
        self._find_classes()
        self._state("running", "baseline")
        baseline.measure(self.context)
        self.records.agree(self.context.reader)

    def _find_classes(self) -> None:
        """Have a benchmark's own table say which rows behave alike, unless the manifest does."""
        setup, stop = self.setup, self.context.stop
        if setup.command is None:
            return
        class_baseline.prepare(setup)
        if class_baseline.settled(setup):
            return
        self._state("running", "config classes: two runs of the benchmark")
        found, proposal = self.context.aside(lambda: self.context.fleet.run(
            "verdict", lambda card: class_baseline.find(setup, card.device, cancel=stop),
            cancel=stop, on_wait=lambda text: self.context.messages.put(
                SlotProgress(slot="classes", stage="waiting", detail=text))))
        self._work_on(found)
        self.context.writer.event(setup.id, "classes", message=proposal.words)

    def _rounds(self) -> str:
        """Run rounds until there is a reason to stop; returns it.

        A round that was cut short is ended first, without workers if there is no room for them:
        what they captured before is judged.
        """
        while True:
            self.controls.look()
            self._pause()
            self._between()
            cut = self._cut_rounds()
            reason = rollback.failing(self.context) or rollback.ended(
                self.context.reader, self.setup.id) or self.steering.reason_to_stop()
            if reason and not cut:
                return reason
            n = self._next_round()
            self._state("running", f"round {n}: looking for bottlenecks")
            tasks, why_none = ([], "") if reason else self.steering.tasks(n)
            if not tasks and not cut:
                return f"nothing left to try: {why_none}"
            self._state("running", f"round {n}")
            self._round(n, tasks, closing=bool(reason))

    def _between(self) -> None:
        """Carry out approvals, whenever the engine has a moment."""
        if self.controls.decide(self.keeper):
            self._headline()

    def _round(self, n: int, tasks: Sequence[Task], *, closing: bool) -> None:
        limit = self.setup.manifest.pool.workers or survey.default_workers(self.setup)
        pool = Pool(self.setup, self.workers, limit, self.context.messages, self.context.fleet)
        carried = self.context.reader.candidates(self.setup.id, states=("captured", "verified"))
        running = RoundRun(self.context, self.keeper, pool, self.records, n, self._between,
                           self.meter, self.steering.late())
        result = running.run(tasks, carried, closing=closing)
        self._headline()
        undone = [one.told for one in history.rollbacks(self.context.reader, self.setup.id)
                  if one.round == n and not one.ends]
        self.meter.note()
        one = self._campaign()
        self.context.writer.end_round(
            self.setup.id, n, outcome=result.outcome,
            summary="; ".join([result.summary, *undone]),
            best_speedup=1.0 if one.best_commit == one.base_commit else one.speedup)
        tips.learn(self.context)
        self.records.agree(self.context.reader)

    def _headline(self) -> None:
        """Re-measure the best against the baseline: the headline is never a product of gains.

        What is recorded is not repeated; an engine that was killed may not have come to it, nor to
        going back to what was accepted before.
        """
        before = self._campaign()
        state = before.state if self.decide_only else "running"
        if headline.due(self.context):
            self.records.agree(self.context.reader)
            self._state(state, "headline: the best against the baseline", before.reason,
                        before.doubt)
            headline.measure(self.context)
            self._state(before.state, before.phase, before.reason, before.doubt)
        if rollback.lower(self.context):
            self._state(state, "acceptance: back to what was accepted before", before.reason,
                        before.doubt)
            rollback.roll_back(self.context, self.steering.may_accept, ends=False)
            self._state(before.state, before.phase, before.reason, before.doubt)

    def _next_round(self) -> int:
        """Return the round to run: the one that was cut short, or the next."""
        rounds = self.context.reader.rounds(self.setup.id)
        cut = self._cut_rounds()
        return min(cut) if cut else max((r.n for r in rounds), default=1) + 1

    def _cut_rounds(self) -> list[int]:
        """Return the rounds that an engine began and did not end: what they hold is judged yet."""
        return [r.n for r in self.context.reader.rounds(self.setup.id)
                if r.ended_at is None and r.n > 1]

    def _pause(self) -> None:
        if not self.controls.paused:
            return
        self._state("paused", "paused")
        self.meter.pause()
        while self.controls.paused:
            self.context.wait()
            self._between()
        self.meter.resume()
        self._state("running", "resumed")

    def _finish(self, reason: str) -> None:
        self.controls.look()
        self._between()
        accepted = self._accept()
        tips.learn(self.context)
        deferred.ask_next(self.keeper)
        self._end_to_end()
        if accepted:
            reason = accepted if accepted.startswith(reason) else f"{reason}; {accepted}"
        self._end("waiting" if self._waiting() else "finished", reason)

    def _end_to_end(self) -> None:
        """Run the whole program in what is left of the budget; what a person asks for after the
        end is not of it.
        """
        if not end_to_end.due(self.context):
            return
        before = self._campaign()
        self._state(before.state if self.decide_only else "running",
                    "end to end: the whole program with the best and without it", before.reason,
                    before.doubt)
        wall_s = None if self.decide_only else self.setup.manifest.budget.wall_s
        end_to_end.end_to_end(self.context, left_s=None if wall_s is None else
                          max(0.0, wall_s - self.meter.spent.wall_s))

    def _accept(self) -> str:
        """Go back to what passes the final acceptance, if the best does not; returns what to say.
        """
        if not rollback.failing(self.context):
            return ""
        self.records.agree(self.context.reader)
        before = self._campaign()
        self._state(before.state if self.decide_only else "running",
                    "final acceptance: back to a commit that passes", before.reason, before.doubt)
        return rollback.roll_back(self.context, self.steering.may_accept,
                                    ends=not self.decide_only)

    def _look(self) -> None:
        """What is done several times a second, whatever is waited for."""
        self.controls.look()
        self.meter.beat()

    def _spend(self, seconds: float, trials: int, cost: float) -> None:
        self.context.writer.spend(self.setup.id, max(1, self.context.round), seconds=seconds,
                                  trials=trials, cost=cost)

    def _state(self, state: CampaignState, phase: str, reason: str = "",
               doubt: str = "") -> None:
        self.context.writer.set_campaign(
            self.setup.id, kind="campaign.state", state=state, phase=phase, reason=reason,
            doubt=doubt, payload={
                "state": state, "phase": phase, "reason": with_doubt(reason, doubt)})

    def _campaign(self) -> Campaign:
        campaign = self.context.reader.campaign(self.setup.id)
        assert campaign is not None
        return campaign
