"""Decide between rounds: whether to run another one, and what it tries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from engine.campaign import artifacts, project_skill
from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.doctor import surroundings
from engine.history import attempt_digest, history, round_resume, spending
from engine.history.history import CampaignHistory
from engine.history.spending import DurationEstimates, SpendingMeter
from engine.journal.decoded import plan_event
from engine.journal.decoded.plan_event import RoundPlan, SuggestedIdea
from engine.judge import stop_rules
from engine.judge.stop_rules import Stop
from engine.knowledge import strategy_record
from engine.knowledge.strategy_table import StrategyPlace
from engine.manifest import goal
from engine.manifest.schema import BudgetSpec
from engine.planning import (
    kernel_routing,
    outages,
    past_rounds,
    pool_size,
    stagnation,
    survey,
    tips,
)
from engine.planning.advice import model_planner, trace_analyst
from engine.planning.outages import Outage
from engine.planning.plan_inputs import PlanInputs, PlanWeights, planned_share
from engine.planning.round_plan import idle_slots, inbox_tasks, plan
from engine.planning.stagnation import StagnationReview, TriedDirections
from engine.planning.survey import Survey
from engine.split.languages.detect import splits
from engine.task import Task
from engine.workers import inbox

FRUITLESS = 2
"""After this many rounds in a row without a new candidate, only a new direction can bring one."""
FRUITLESS_MOST = 5
"""After this many such rounds the campaign ends, even if there are new directions."""
LEAST_WORK = 2
"""A round starts only if there is time for its verdicts, and for work as long as this many."""
JOB_MARGIN_S, JOB_LAST_S = 120.0, 30.0
"""Seconds before the end of a campaign's Slurm job: when it should end, and when it is cut off."""


def submitted(setup: Setup) -> list[Path]:
    """Return the submitted patches that no round has judged, oldest first."""
    return inbox.waiting(setup.folder.inbox)


class Planner:
    """Plans a campaign's rounds from its journal alone, so that another engine can continue."""

    def __init__(self, context: EngineContext, meter: SpendingMeter) -> None:
        self.context, self.meter = context, meter
        self.job_end = surroundings.job_end()
        """When the Slurm job of the campaign ends, seconds since the epoch."""
        self.left_out: tuple[Outage, ...] = ()
        """The agents that the last plan leaves out until their provider is asked again."""

    @property
    def setup(self) -> Setup:
        """The campaign with its present limits."""
        return self.context.setup

    def history(self) -> CampaignHistory:
        decision = self.setup.manifest.decision
        return history.read(self.context.reader, self.setup.id, decision.score, decision.margin)

    def stop(self) -> Stop:
        """Return why the campaign ends here, and the limit that is the reason."""
        manifest, past = self.setup.manifest, self.history()
        target = goal.parse_goal(manifest.performance_target or "")
        reached = "" if target is None else \
            goal.reached_by(target, survey.verdict_of_best(self.context), self.setup.target)
        self.job_end = surroundings.job_end()  # a job may get more time
        for budget in (manifest.budget, self.budget):
            stop = stop_rules.stop(
                msgspec.structs.replace(manifest, budget=budget), past.tally,
                spent=self.meter.spent, pct_of_roofline=survey.reached(self.context),
                margin_s=self._margin_s(past, self._slots, work=LEAST_WORK), reached=reached)
            if stop.reason:
                return stop if budget is manifest.budget else Stop(self.job_reason)
        return Stop()

    @property
    def budget(self) -> BudgetSpec:
        """The campaign's budget, limited to the time that is left in its Slurm job."""
        budget = self.setup.manifest.budget
        if self.job_end is None:
            return budget
        left_s = self.meter.spent.wall_s + max(0.0, self.job_end - JOB_MARGIN_S - time.time())
        return msgspec.structs.replace(budget, wall_s=min(left_s, budget.wall_s or left_s))

    @property
    def job_reason(self) -> str:
        """Why a campaign ends because of its Slurm job."""
        end = time.strftime("%H:%M", time.localtime(self.job_end))
        return f"the Slurm job ends at {end}; kopt resume in another job continues"

    def job_is_over(self) -> bool:
        """Return whether the Slurm job is so near its end that work must be cut off now."""
        return self.job_end is not None and time.time() >= self.job_end - JOB_LAST_S

    def workers_deadline(self) -> Callable[[int, int], str]:
        """Return a function that says why workers must end now, or "".

        Its arguments are the numbers of candidates in flight and of gains.
        """
        past = self.history()
        durations = self._durations(past)

        def reason(candidates: int, gains: int) -> str:
            used_s, wall_s = self.meter.spent.wall_s, self.budget.wall_s
            margin_s = self._margin_s(past, candidates, gains, durations=durations)
            if wall_s is None or used_s + margin_s < wall_s:
                return ""
            return f"{used_s:.0f} s of {wall_s:g} s used; the rest is for verdicts"

        return reason

    def may_accept(self) -> bool:
        """Return whether there is time for one more final verdict and the end-to-end runs."""
        wall_s = self.budget.wall_s
        durations = self._durations(self.history())
        return wall_s is None or \
            self.meter.spent.wall_s + durations.final + durations.end_to_end <= wall_s

    def tasks(self, n: int) -> tuple[list[Task], str]:
        """Survey the best and return the tasks of round `n`, or none and the reason."""
        past = self.history()
        setup = self.setup
        tried = past_rounds.tried(past, self.context.reader, setup.id, setup.repo)
        review = stagnation.review(past.tally.without_gain, tried)
        rewrites_first = review is not None and review.depth == "state of the art"
        view = survey.of_best(self.context, n, again=rewrites_first)
        if review is not None:
            review = stagnation.review(review.rounds_without_gain, tried, view.bottlenecks)
        now = outages.of(past, self.context.reader, setup.id, setup.manifest.pool)
        self.left_out = tuple(outage for outage in now if outage.waits(time.time()))
        pool, keyless = outages.without_key(outages.without(setup.manifest.pool, self.left_out))
        inputs = msgspec.structs.replace(self._inputs(n, past, view, review, tried), pool=pool)
        if self.left_out == now and (reason := self._exhausted(past, inputs)):
            return [], reason
        recorded = plan_event.of_round(self.context.reader, setup.id, n)
        inputs = trace_analyst.with_causes(self.context, inputs, recorded)
        inputs = model_planner.with_suggestions(self.context, inputs, past, recorded)
        progress = round_resume.progress_of(self.context.reader, setup.id, n)
        tasks = plan(inputs)
        away = ", ".join(str(outage.author) for outage in self.left_out)
        idle = f"without {away}: no answer from the model's provider" if away else \
            f"without agent: {keyless}" if keyless else idle_slots(inputs, tasks)
        tasks = [task for task in tasks if task.slot not in progress.first_attempt_done]
        if not tasks and keyless:
            return [], f"{keyless}; set it where kopt starts, then kopt resume"
        if not tasks:
            return [], survey.nothing_to_do(view, pool, setup.target.source, setup.target.language)
        affordable = spending.afford(tasks, pool, self.budget, self.meter.spent, past,
                                     self._margin_s(past, self._slots))
        if review is not None:
            self._record(n, review, inputs)
        if affordable and recorded is None:
            self._record_plan(inputs, affordable, idle)
        if not affordable:
            scarce = ", ".join(f"budget.{name}" for name in ("wall_s", "trials", "cost", "cost_usd")
                               if getattr(setup.manifest.budget, name) is not None)
            return [], f"the rest of the budget ({scarce}) pays for no attempt"
        return affordable, ""

    def submitted(self, n: int) -> list[Task]:
        """Return the tasks of a round `n` that judges only the patches in the inbox."""
        setup = self.setup
        return inbox_tasks(PlanInputs(
            campaign=setup.id, round=n, pool=setup.manifest.pool, slots=0,
            survey=Survey(inbox=tuple(submitted(setup))), inbox_slots=self._inbox_slots(n)))

    def _inbox_slots(self, n: int) -> dict[str, str]:
        """Return the slots of a round's patches, by the names of the patch files."""
        return {slot.option.rpartition("/")[2]: slot.slot
                for slot in self.context.reader.slots(self.setup.id, n) if slot.backend == "inbox"}

    def _inputs(self, n: int, past: CampaignHistory, view: Survey,
                review: StagnationReview | None, tried: TriedDirections) -> PlanInputs:
        setup, reader = self.setup, self.context.reader
        last = past.attempts[-1].n if past.attempts else 0
        planned, fixed = past_rounds.scores(past, reader.slots(setup.id, last), last)
        known_tips = tips.known(reader, setup.id)
        place = StrategyPlace(op=view.routing.op.name, language=setup.target.language,
                              on_gpu=setup.device.kind != "cpu")
        campaign = reader.campaign(setup.id)
        records = strategy_record.of_card(reader, campaign.gpu if campaign else "")
        return PlanInputs(
            campaign=setup.id, round=n, pool=setup.manifest.pool, slots=self._slots,
            tips=known_tips, failures=past_rounds.failures(past), place=place, records=records,
            translations={route.language: kernel_routing.translation_brief(
                setup, view.routing, route.language) for route in view.routing.routes},
            survey=view, planned=planned, fixed=fixed, review=review, tried=tried,
            may_split=self._may_split(view), inbox_slots=self._inbox_slots(n),
            brief="\n".join(filter(None, (
                stagnation.brief(review),
                strategy_record.brief([tunable.bottleneck.limiter for tunable in view.bottlenecks],
                                      place, records),
                attempt_digest.needing_split(past, setup.repo.tree_of(setup.repo.tip)),
                tips.brief(known_tips),
                attempt_digest.brief(past, artifacts.of_campaign(reader, setup.id),
                                     past_rounds.given_up(past, reader, setup.id)),
                project_skill.brief(setup)))))

    def _may_split(self, view: Survey) -> bool:
        setup = self.setup
        return "split" in setup.manifest.pool.backends and bool(view.knobs) and \
            view.classes > 1 and setup.repo.tip != setup.repo.base and \
            splits(setup.target.source)

    @property
    def _slots(self) -> int:
        return self.setup.manifest.pool.slots or pool_size.default_slots(self.setup)

    def _margin_s(self, past: CampaignHistory, candidates: int, gains: int = 0, work: int = 0,
                  durations: DurationEstimates | None = None) -> float:
        """Return the seconds to reserve for candidates in flight, `gains` and `work` (verdicts)."""
        manifest = self.setup.manifest
        return spending.margin_s(self.budget, durations or self._durations(past), candidates,
                                 cards=len(self.setup.devices),
                                 gains=gains + spending.gains_of(past, candidates),
                                 formats=bool(manifest.format_command), work=work)

    def _durations(self, past: CampaignHistory) -> DurationEstimates:
        return spending.estimate_durations(
            past.verdicts, end_to_end=bool(self.setup.manifest.e2e_command))

    def _record(self, n: int, review: StagnationReview, inputs: PlanInputs) -> None:
        """Record the review, once for its round."""
        events = self.context.reader.events_of(self.setup.id, "stagnation")
        if events and events[-1].ref == str(n):
            return
        searches = [direction.hypothesis
                    for direction in inputs.new_directions[:planned_share(inputs)]]
        self.context.writer.event(
            self.setup.id, "stagnation", str(n), round=n, depth=review.depth,
            rollbacks=review.rounds_without_gain,  # the name in the journal
            directions=stagnation.named(searches, review.ideas), demands=review.demands)

    def _record_plan(self, inputs: PlanInputs, tasks: Sequence[Task], idle: str) -> None:
        """Record the slots, weights and routing of a round, and what a model suggested."""
        weights, kinds = PlanWeights.of(inputs), [task.kind for task in tasks]
        plan = RoundPlan(
            round=inputs.round, planned=kinds.count("planned"), rewrites=kinds.count("rewrite"),
            fixed=kinds.count("fixed"), split=str(weights), idle=idle,
            planned_weight=round(weights.planned, 3), fixed_weight=round(weights.fixed, 3),
            model=inputs.model_note, analysis=inputs.analysis, causes=inputs.causes,
            routing=str(inputs.survey.routing), surveyed=self.setup.repo.tip, suggested=tuple(
                SuggestedIdea(text=idea.text, bottleneck=idea.tunable.bottleneck.id
                              if idea.tunable else "") for idea in inputs.suggested))
        self.context.writer.event(self.setup.id, plan_event.KIND, str(inputs.round),
                                  **msgspec.to_builtins(plan))

    def _exhausted(self, past: CampaignHistory, inputs: PlanInputs) -> str:
        """Return why another round would bring nothing new, or ""."""
        count = past.fruitless_rounds(() if self.left_out else outages.without_agents(
            past, self.context.reader, self.setup.id))
        if count < FRUITLESS or (inputs.survey.inbox and count < FRUITLESS_MOST):
            return ""  # a patch that cannot leave the inbox would start rounds forever
        last = self.context.reader.slots(self.setup.id, past.attempts[-1].n)
        if failed := [slot for slot in last if slot.stage == "failed"]:
            is_new = past_rounds.since_stop(past, self.context.reader, self.setup.id) >= FRUITLESS
            return f"no slot of {FRUITLESS} rounds brought a candidate; {failed[-1].slot}: " \
                   f"{failed[-1].detail}" if is_new else ""
        if count < FRUITLESS_MOST and (inputs.new_directions or inputs.new_changes) \
                and planned_share(inputs):
            return ""
        return f"{count} rounds in a row brought no candidate; kopt submit PATCH judges a change " \
            "of your own"
