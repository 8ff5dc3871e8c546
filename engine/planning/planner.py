"""From what the journal knows: is another round to be run, and what is it to try?"""

from __future__ import annotations

from collections.abc import Callable

from engine.context import EngineContext
from engine.history import divergence, history, round_resume, spending
from engine.history.history import CampaignHistory
from engine.history.spending import DurationEstimates, SpendingMeter
from engine.judge.stop_rules import reason_to_stop
from engine.manifest import goal
from engine.planning import stagnation, survey, tips, unplanned
from engine.planning.round_plan import PlanInputs, SlotKindStats, plan, planned_share
from engine.planning.stagnation import StagnationReview
from engine.planning.survey import Survey
from engine.split.languages.detect import splits
from engine.task import Task

IN_VAIN = 2
"""Rounds in a row that brought no new candidate, after which only a new direction would."""
IN_VAIN_MOST = 5
"""After so many all reviews were in vain as well."""
BEGINNING = 2
"""A round is not begun unless, besides its verdicts, there is time for work as long as so many."""


class Planner:
    """Looks at a campaign between its rounds, always at the journal, so that nothing is forgotten
    when another engine goes on.
    """

    def __init__(self, context: EngineContext, meter: SpendingMeter) -> None:
        self.context, self.setup, self.meter = context, context.setup, meter

    def history(self) -> CampaignHistory:
        decision = self.setup.manifest.decision
        return history.read(self.context.reader, self.setup.id, decision.score, decision.margin)

    def reason_to_stop(self) -> str:
        """Return why the campaign ends here, or ""."""
        manifest, past = self.setup.manifest, self.history()
        wanted = goal.parse_goal(manifest.performance_target or "")
        reached = "" if wanted is None else \
            goal.reached_by(wanted, survey.verdict_of_best(self.context), self.setup.target)
        return reason_to_stop(manifest, past.tally, spent=self.meter.spent,
                              margin_s=self._margin(past, self._slots, work=BEGINNING),
                              pct_of_roofline=survey.reached(self.context), reached=reached)

    def late(self) -> Callable[[int, int], str]:
        """Return what tells, of so many candidates in flight and so many gains beside them, why
        work must end now.
        """
        past, wall_s = self.history(), self.setup.manifest.budget.wall_s
        each = self._each(past)

        def reason(candidates: int, gains: int) -> str:
            used = self.meter.spent.wall_s
            if wall_s is None or used + self._margin(past, candidates, gains, each=each) < wall_s:
                return ""
            return f"{used:.0f} s of {wall_s:g} s used, the rest is for verdicts"

        return reason

    def may_accept(self) -> bool:
        """Tell whether there is time for one more final verdict, and for the end after it."""
        wall_s = self.setup.manifest.budget.wall_s
        each = self._each(self.history())
        return wall_s is None or \
            self.meter.spent.wall_s + each.final + each.end_to_end <= wall_s

    def tasks(self, n: int) -> tuple[list[Task], str]:
        """Look at the best and plan round `n`; without a task, say why there is none."""
        past = self.history()
        review, tried = self._review(past)
        known_forms = review is not None and review.depth == "state of the art"
        view = survey.of_best(self.context, n, again=known_forms)
        if review is not None:
            review = stagnation.review(review.rollbacks, tried, stagnation.places(view.leads))
        planned, fixed = self._success(past)
        outlook = PlanInputs(
            campaign=self.setup.id, round=n, pool=self.setup.manifest.pool, slots=self._slots,
            knobs=view.knobs, leads=view.leads, templates=view.templates, inbox=view.inbox,
            planned=planned, fixed=fixed, review=review, tried=tried,
            may_split=self._may_split(view), begun=tuple(
                (slot.hypothesis, slot.slot)
                for slot in self.context.reader.slots(self.setup.id, n) if slot.backend == "inbox"),
            brief="\n".join(filter(None, (
                stagnation.brief(review, past.recent()),
                divergence.brief(divergence.of(past)),
                tips.brief(tips.known(self.context.reader, self.setup.id))))))
        if reason := self._in_vain(past, outlook):
            return [], reason
        through = round_resume.progress_of(self.context.reader, self.setup.id, n).through
        wanted = [task for task in plan(outlook) if task.slot not in through]
        if not wanted:
            target = self.setup.target
            return [], unplanned.why(view, self.setup.manifest.pool, target.source, target.language)
        tasks = spending.afford(wanted, self.setup.manifest.budget, self.meter.spent, past,
                              self._margin(past, self._slots),
                              {cli.name: cli.cost for cli in self.setup.manifest.pool.cli})
        if review is not None:
            self._tell(n, review, outlook)
        return tasks, "" if tasks else "what is left of the budget pays for no attempt"

    def _may_split(self, view: Survey) -> bool:
        setup = self.setup
        return "split" in setup.manifest.pool.backends and bool(view.knobs) and \
            view.classes > 1 and setup.repo.best != setup.repo.base and \
            splits(setup.target.source)

    @property
    def _slots(self) -> int:
        return self.setup.manifest.pool.slots or survey.default_slots(self.setup)

    def _margin(self, past: CampaignHistory, candidates: int, gains: int = 0, work: int = 0,
                each: DurationEstimates | None = None) -> float:
        """Return what is to be left for candidates in flight, and for `gains` beside them."""
        manifest = self.setup.manifest
        return spending.margin_s(manifest.budget, each or self._each(past), candidates,
                               cards=len(self.setup.devices),
                               gains=gains + spending.gains_of(past, candidates),
                               formats=bool(manifest.format_command), work=work)

    def _each(self, past: CampaignHistory) -> DurationEstimates:
        return spending.estimate_durations(
            past.verdicts, end_to_end=bool(self.setup.manifest.e2e_command))

    def _review(self, past: CampaignHistory) -> tuple[StagnationReview | None, frozenset[str]]:
        """Return what the rollbacks demand, and the hypotheses of all slots on this best."""
        best = self.setup.repo.best
        tried = frozenset(slot.hypothesis for round in past.attempts if round.incumbent == best
                          for slot in self.context.reader.slots(self.setup.id, round.n))
        return stagnation.review(past.tally.without_gain, tried), tried

    def _tell(self, n: int, review: StagnationReview, outlook: PlanInputs) -> None:
        """Record the review, once for its round."""
        told = self.context.reader.events_of(self.setup.id, "stagnation")
        if told and told[-1].ref == str(n):
            return
        found = [direction.hypothesis for direction in outlook.new[:planned_share(outlook)]]
        self.context.writer.event(
            self.setup.id, "stagnation", str(n), round=n, depth=review.depth,
            rollbacks=review.rollbacks, directions=stagnation.named(found, review.ideas),
            demands=review.demands)

    def _in_vain(self, past: CampaignHistory, outlook: PlanInputs) -> str:
        """Return why another round would bring nothing new, or ""."""
        count = past.in_vain()
        if count < IN_VAIN or outlook.inbox:
            return ""
        last = self.context.reader.slots(self.setup.id, past.attempts[-1].n)
        failed = [slot for slot in last if slot.stage == "failed"]
        if failed:
            return f"no slot of {IN_VAIN} rounds brought a candidate; {failed[-1].slot}: " \
                   f"{failed[-1].detail}"
        if count < IN_VAIN_MOST and outlook.new and planned_share(outlook):
            return ""
        return "every slot repeats what was tried before"

    def _success(self, past: CampaignHistory) -> tuple[SlotKindStats, SlotKindStats]:
        """Return how planned and other slots fared in the last round that was an attempt."""
        if not past.attempts:
            return SlotKindStats(), SlotKindStats()
        last = past.attempts[-1].n
        planned = {slot.slot: slot.kind == "planned"
                   for slot in self.context.reader.slots(self.setup.id, last)}
        speedups: dict[bool, list[float]] = {True: [], False: []}
        for row in past.verdicts.values():
            candidate = past.candidates.get(row.candidate)
            if candidate is not None and candidate.round == last and row.purpose == "verify" \
                    and row.speedup is not None:
                speedups[planned.get(candidate.slot, False)].append(row.speedup)
        kinds = list(planned.values())
        return (SlotKindStats(speedups=tuple(speedups[True]), slots=kinds.count(True)),
                SlotKindStats(speedups=tuple(speedups[False]), slots=kinds.count(False)))
