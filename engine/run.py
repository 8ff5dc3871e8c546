"""One engine's run over a campaign: what happens from taking it over to giving it back.

recover → baseline → rounds (plan → work → verify → judge → keep) → stop summary.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from engine import keep, standby, survey
from engine.approval import Controls
from engine.desk import Desk, Stopped
from engine.journal.errors import LeaseLost
from engine.journal.records import Campaign, CampaignState, Round
from engine.keeper import Keeper
from engine.plan import Outlook, Success, plan
from engine.pool import Pool
from engine.records.write import Records
from engine.round import Result, RoundRun
from engine.stopping import reason_to_stop, tally
from engine.survey import Survey
from engine.verifier import Job
from engine.workers import registry
from engine.workers.base import Task
from harness.errors import InputError, KoptError, of_os

log = logging.getLogger("kopt.engine")
IN_VAIN = 2
"""Rounds in a row that brought no new candidate, after which another would not either."""


class Run:
    """One engine's run over a campaign, from taking it over to giving it back."""

    def __init__(self, desk: Desk, *, decide_only: bool) -> None:
        self.desk, self.setup, self.decide_only = desk, desk.setup, decide_only
        self.keeper = Keeper(desk)
        self.controls = Controls(desk, since=desk.since, decide_only=decide_only)
        self.records = Records(desk.setup)
        self.workers = registry.workers(desk.setup.manifest)
        self.began = time.monotonic()
        self.trials = 0
        self.in_vain: list[Result] = []
        self.last: Result | None = None
        self.before = self._campaign()
        desk.on_controls = self.controls.look

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
            self._headline()
            self._finish(self._untimed() or self._rounds())
        except Stopped:
            self._cut_short("stopped", self.controls.stop_reason or "stopped in order")
        except LeaseLost:
            raise  # the campaign is another engine's now: nothing of it is ours to say
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
        keep.recover(self.desk.writer, self.setup.lineage)
        self.setup.lineage.remove_all()
        self.setup.folder.remove_parts()
        self.records.agree(self.desk.reader)

    def _cut_short(self, state: CampaignState, reason: str) -> None:
        """Record an end that is not the campaign's own; a short host leaves it as it was."""
        if self.decide_only:
            self._state(self.before.state, self.before.phase, self.before.reason)
            return
        self._state(state, "", reason)
        try:
            self.records.stop(reason, self._best(), self._waiting())
        except OSError as error:
            log.warning("no stop summary: %s", of_os(error))

    def _decide(self) -> None:
        """Carry out what people decided on a campaign that no engine runs; it stays as it was."""
        before = self.before
        self.desk.round = before.round
        self.controls.look()
        self._between()
        state = before.state
        if state in ("waiting", "finished"):
            standby.ask_next(self.keeper)
            state = "waiting" if self._waiting() else "finished"
        self._state(state, before.phase, before.reason)

    def _waiting(self) -> int:
        return len(self.desk.reader.candidates(self.setup.id, states=("waiting",)))

    def _baseline(self) -> None:
        """Measure the unmodified code, against itself: its latency, and this machine's noise."""
        base = self.setup.lineage.base
        tree = self.setup.lineage.tree_of(base)
        self.desk.round = 1
        if self.desk.recorded("baseline", "baseline", tree) is not None:
            return
        self._state("running", "baseline")
        self.desk.writer.start_round(Round(campaign=self.setup.id, n=1, scope="global",
                                           incumbent=base, started_at=time.time()))
        verdict = self.desk.verdict(Job(purpose="baseline", candidate="baseline", slot="baseline",
                                        candidate_tree=tree, incumbent_tree=tree,
                                        alpha=self.setup.manifest.decision.alpha,
                                        always_time=True))
        if not verdict.valid or not verdict.correct:
            why = verdict.rejected_reason or next(
                (f"class {r.config_class}: {r.note}" for r in verdict.rows if not r.correct), "")
            raise InputError(f"the baseline does not pass its own check: {why}",
                             where=self.setup.target.source,
                             fix="correct the kernel, the reference or the tolerance")
        writer = self.desk.writer
        with writer.transaction():
            writer.add_verdict(self.setup.id, "baseline", verdict, purpose="baseline")
            writer.event(self.setup.id, "baseline", base, latency_us=verdict.latency_us,
                         noise=verdict.detectable_effect)
            writer.end_round(self.setup.id, 1, outcome="baseline", best_speedup=1.0,
                             summary=f"baseline: {survey.describe_baseline(verdict)}")
        self.records.agree(self.desk.reader)

    def _untimed(self) -> str:
        """Say why nothing could ever be kept here: a Triton kernel is not timed without a GPU."""
        base = self.setup.lineage.tree_of(self.setup.lineage.base)
        verdict = self.desk.recorded("baseline", "baseline", base)
        if verdict is None or verdict.latency_us is not None:
            return ""
        return f"nothing can be timed on {self.setup.device.name}: the baseline is correct, and " \
               f"{self.setup.target.language} needs a GPU to be measured"

    def _rounds(self) -> str:
        """Run rounds until there is a reason to stop; returns it."""
        while True:
            self.controls.look()
            self._pause()
            self._between()
            if reason := self._reason():
                return reason
            n = self._next_round()
            self._state("running", f"round {n}: looking for bottlenecks")
            view = survey.of_best(self.desk, n)
            tasks = plan(self._outlook(n, view))
            if not tasks and not self._cut_rounds():
                return "nothing left to try: no slot has anything to do"
            self._state("running", f"round {n}")
            result = self._round(n, tasks)
            self.trials += result.trials
            self.in_vain = [] if result.fresh else [*self.in_vain, result]
            self.last = result

    def _between(self) -> None:
        """Carry out approvals, whenever the engine has a moment."""
        if self.controls.decide(self.keeper):
            self._headline()

    def _round(self, n: int, tasks: Sequence[Task]) -> Result:
        limit = self.setup.manifest.pool.workers or survey.default_workers(self.setup)
        pool = Pool(self.setup, self.workers, limit, self.desk.messages, self.desk.fleet)
        carried = self.desk.reader.candidates(self.setup.id, states=("captured", "verified"))
        before = self.setup.lineage.best
        running = RoundRun(self.desk, self.keeper, pool, self.records, n, self._between)
        result = running.run(tasks, carried)
        self._headline()
        if self.setup.lineage.best != before:  # kept by the round, or by a person meanwhile
            result.outcome = "keep"
        self.desk.writer.end_round(self.setup.id, n, outcome=result.outcome,
                                   summary=result.summary,
                                   best_speedup=self._campaign().speedup or 1.0)
        self.records.agree(self.desk.reader)
        return result

    def _headline(self) -> None:
        """Re-measure the best against the baseline: the headline is never a product of gains.

        What is recorded is not repeated; an engine that was killed may not have come to it.
        """
        lineage = self.setup.lineage
        best, base = lineage.best, lineage.base
        if best == base or self.desk.recorded(best[:12], "headline", lineage.tree_of(base)):
            return
        self.records.agree(self.desk.reader)
        before = self._campaign()
        state = before.state if self.decide_only else "running"
        self._state(state, "headline: the best against the baseline", before.reason)
        self.keeper.headline()
        self._state(before.state, before.phase, before.reason)

    def _outlook(self, n: int, view: Survey) -> Outlook:
        manifest, last = self.setup.manifest, self.last
        planned = fixed = Success()
        if last is not None:
            planned = Success(speedups=tuple(last.speedups.get("planned", ())),
                              slots=last.slots.get("planned", 0))
            rest = ("fixed", "rewrite")
            fixed = Success(speedups=tuple(s for k in rest for s in last.speedups.get(k, ())),
                            slots=sum(last.slots.get(k, 0) for k in rest))
        return Outlook(campaign=self.setup.id, round=n, pool=manifest.pool, knobs=view.knobs,
                       slots=manifest.pool.slots or survey.default_slots(self.setup),
                       leads=view.leads, templates=view.templates, inbox=view.inbox,
                       planned=planned, fixed=fixed)

    def _reason(self) -> str:
        rounds = self.desk.reader.rounds(self.setup.id)
        return reason_to_stop(
            self.setup.manifest, tally(rounds), trials=self.trials,
            elapsed_s=time.monotonic() - self.began, exhausted=self._exhausted(),
            pct_of_roofline=survey.reached(self.desk))

    def _exhausted(self) -> str:
        """Return why another round would bring nothing new, or ""."""
        if len(self.in_vain) < IN_VAIN:
            return ""
        last = self.in_vain[-1]
        if last.failure:
            return f"no slot of {IN_VAIN} rounds brought a candidate; {last.failure}"
        return "every slot repeats what was tried before"

    def _next_round(self) -> int:
        """Return the round to run: the one that was cut short, or the next."""
        rounds = self.desk.reader.rounds(self.setup.id)
        cut = self._cut_rounds()
        return min(cut) if cut else max((r.n for r in rounds), default=1) + 1

    def _cut_rounds(self) -> list[int]:
        """Return the rounds that an engine began and did not end: what they hold is judged yet."""
        return [r.n for r in self.desk.reader.rounds(self.setup.id)
                if r.ended_at is None and r.n > 1]

    def _pause(self) -> None:
        if not self.controls.paused:
            return
        self._state("paused", "paused")
        while self.controls.paused:
            self.desk.wait()
            self._between()
        self._state("running", "resumed")

    def _finish(self, reason: str) -> None:
        self.controls.look()
        self._between()
        standby.ask_next(self.keeper)
        waiting = self._waiting()
        self.records.stop(reason, self._best(), waiting)
        self._state("waiting" if waiting else "finished", "", reason)

    def _best(self) -> str:
        best = self._campaign()
        if best.speedup is None:
            return "1.00x: nothing was kept"
        return f"{best.speedup:.2f}x [{best.speedup_low or 0:.2f}, {best.speedup_high or 0:.2f}]"

    def _state(self, state: CampaignState, phase: str, reason: str = "") -> None:
        self.desk.writer.set_campaign(
            self.setup.id, kind="campaign.state", state=state, phase=phase, reason=reason,
            payload={"state": state, "phase": phase, "reason": reason})

    def _campaign(self) -> Campaign:
        campaign = self.desk.reader.campaign(self.setup.id)
        assert campaign is not None
        return campaign
