"""The engine: a thread that carries one campaign through its phases.

recover → baseline → rounds (plan → work → verify → judge → keep) → stop summary. It is the only
writer of its campaign; people reach it through controls in the journal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from engine import campaign as campaigns
from engine import keep, standby, survey
from engine import lease as leases
from engine.approval import Controls
from engine.campaign import Setup
from engine.desk import Desk, Stopped
from engine.journal.errors import LeaseLost
from engine.journal.records import Campaign, CampaignState, Round
from engine.journal.write import Writer
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
from harness.errors import KoptError

log = logging.getLogger("kopt.engine")


class Engine(threading.Thread):
    """Runs one campaign. `decide_only` applies waiting controls and ends (a short host)."""

    def __init__(self, workspace: Path, campaign: str, *, decide_only: bool = False) -> None:
        super().__init__(name=f"engine {campaign}", daemon=True)
        self.workspace = workspace
        self.campaign = campaign
        self.decide_only = decide_only
        self.error: KoptError | None = None
        self.own_s = 0.0
        """Wall time outside workers and harness, once it has ended."""
        self.wall_s = 0.0
        self._stop_event = threading.Event()

    def stop(self) -> None:
        """End the campaign in order: workers killed, state recorded, lease given back."""
        self._stop_event.set()

    def run(self) -> None:
        began = time.monotonic()
        writer = Writer(self.workspace)
        try:
            setup = campaigns.open_campaign(self.workspace, self.campaign)
            _log_to(setup)
            lease = leases.acquire(writer, self.campaign)
            desk = Desk(setup, writer, lease, self._stop_event)
            try:
                Run(desk, decide_only=self.decide_only).go()
            finally:
                desk.close()
                self.own_s = time.monotonic() - began - desk.waited_s
            leases.release(writer, lease)
        except LeaseLost as error:
            log.warning("%s", error)
            self.error = error
        except KoptError as error:
            log.error("%s", error)
            self.error = error
        finally:
            self.wall_s = time.monotonic() - began
            writer.close()


class Run:
    """One engine's run over a campaign, from taking it over to giving it back."""

    def __init__(self, desk: Desk, *, decide_only: bool) -> None:
        self.desk, self.setup, self.decide_only = desk, desk.setup, decide_only
        self.keeper = Keeper(desk)
        self.controls = Controls(desk)
        self.records = Records(desk.setup)
        self.workers = registry.workers(desk.setup.manifest)
        self.began = time.monotonic()
        self.trials = 0
        self.stale = 0
        self.last: Result | None = None
        desk.on_controls = self.controls.look

    def go(self) -> None:
        """Carry the campaign on until it stops, and record how it ended."""
        try:
            self.records.start()
            keep.recover(self.desk.writer, self.setup.lineage)
            if self.decide_only:
                self._decide()
                return
            self._state("running", "recovered" if self._campaign().round else "starting")
            self._baseline()
            self._finish(self._rounds())
        except Stopped:
            self._state("stopped", "", self.controls.stop_reason or "stopped in order")
        except KoptError as error:
            self._state("failed", "", str(error))
            raise
        except Exception as error:
            log.exception("the engine failed")
            self._state("failed", "", f"internal error: {type(error).__name__}: {error}; "
                        f"see {self.setup.folder.logs / 'engine.log'}")
            raise

    def _decide(self) -> None:
        """Carry out what people decided on a campaign that no engine runs; it stays as it was."""
        before = self._campaign()
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
            raise KoptError(f"the baseline does not pass its own check: {why}",
                            where=self.setup.target.source,
                            fix="correct the kernel, the reference or the tolerance")
        writer = self.desk.writer
        with writer.transaction():
            writer.add_verdict(self.setup.id, "baseline", verdict, purpose="baseline")
            writer.event(self.setup.id, "baseline", base, latency_us=verdict.latency_us,
                         noise=verdict.detectable_effect)
            writer.end_round(self.setup.id, 1, outcome="baseline", best_speedup=1.0,
                             summary=f"baseline: {survey.describe_baseline(verdict)}")
        self.records.baseline(verdict)

    def _rounds(self) -> str:
        """Run rounds until there is a reason to stop; returns it."""
        while True:
            self._pause()
            self._between()
            if reason := self._reason():
                return reason
            n = self._next_round()
            self._state("running", f"round {n}: looking for bottlenecks")
            view = survey.of_best(self.desk, n)
            tasks = plan(self._outlook(n, view))
            self._state("running", f"round {n}")
            result = self._round(n, tasks)
            self.trials += result.trials
            self.stale = 0 if result.fresh else self.stale + 1
            self.last = result

    def _between(self) -> None:
        """Carry out approvals, whenever the engine has a moment."""
        if self.controls.decide(self.keeper):
            self._after_keep()

    def _round(self, n: int, tasks: Sequence[Task]) -> Result:
        limit = self.setup.manifest.pool.workers or survey.default_workers(self.setup)
        pool = Pool(self.setup, self.workers, limit, self.desk.messages)
        carried = self.desk.reader.candidates(self.setup.id, states=("captured", "verified"))
        before = self.setup.lineage.best
        running = RoundRun(self.desk, self.keeper, pool, self.records, n, self._between)
        result = running.run(tasks, carried)
        if self.setup.lineage.best != before:
            self._after_keep()
        best = self._campaign().speedup
        self.desk.writer.end_round(self.setup.id, n, outcome=result.outcome,
                                   summary=result.summary, best_speedup=best or 1.0)
        ended = next(r for r in self.desk.reader.rounds(self.setup.id) if r.n == n)
        self.records.round(ended, f"{best:.2f}x" if best else "1.00x")
        return result

    def _after_keep(self) -> None:
        """Re-measure the best against the baseline: the headline is never a product of gains."""
        self._state("running", "headline: the best against the baseline")
        verdict = self.keeper.headline()
        if verdict is not None:
            message = self.setup.lineage.message(self.setup.lineage.best).splitlines()[0]
            self.records.kept(self.setup.lineage.best, verdict, message)

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
            elapsed_s=time.monotonic() - self.began, exhausted=self.stale >= 2,
            pct_of_roofline=survey.reached(self.desk))

    def _next_round(self) -> int:
        """Return the round to run: the one that was cut short, or the next."""
        rounds = self.desk.reader.rounds(self.setup.id)
        cut = [r.n for r in rounds if r.ended_at is None and r.n > 1]
        return min(cut) if cut else max((r.n for r in rounds), default=1) + 1

    def _pause(self) -> None:
        if not self.controls.paused:
            return
        self._state("paused", "paused")
        while self.controls.paused:
            self.desk.wait()
        self._state("running", "resumed")

    def _finish(self, reason: str) -> None:
        self.controls.look()
        self._between()
        standby.ask_next(self.keeper)
        waiting, best = self._waiting(), self._campaign()
        headline = "1.00x: nothing was kept" if best.speedup is None else \
            f"{best.speedup:.2f}x [{best.speedup_low or 0:.2f}, {best.speedup_high or 0:.2f}]"
        self.records.stop(reason, headline, waiting)
        self._state("waiting" if waiting else "finished", "", reason)

    def _state(self, state: CampaignState, phase: str, reason: str = "") -> None:
        self.desk.writer.set_campaign(
            self.setup.id, kind="campaign.state", state=state, phase=phase, reason=reason,
            payload={"state": state, "phase": phase, "reason": reason})

    def _campaign(self) -> Campaign:
        campaign = self.desk.reader.campaign(self.setup.id)
        assert campaign is not None
        return campaign


def _log_to(setup: Setup) -> None:
    """Send the engine's log to a file in the campaign's folder; stdout belongs to output."""
    path = setup.folder.logs / "engine.log"
    if any(getattr(h, "baseFilename", "") == str(path) for h in log.handlers):
        return
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
