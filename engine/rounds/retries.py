"""Second tries: a candidate that is wrong goes back to be mended, one that divides the classes is
taken for those that gain, by kopt or else by its agent.
"""

from __future__ import annotations

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.history import round_resume
from engine.history.spending import SpendingMeter
from engine.journal.records import Candidate
from engine.judge import candidate as candidates
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.lineage.promote import Keeper
from engine.rounds import repair, split_retry
from engine.rounds.pool import Pool
from engine.task import Task
from harness.errors import InputError


class Retries:
    """Gives slots of one round their work back."""

    def __init__(self, context: EngineContext, keeper: Keeper, pool: Pool,
                 meter: SpendingMeter) -> None:
        self.context, self.setup, self.keeper, self.pool = context, context.setup, keeper, pool
        self._meter = meter

    def begin(self, judged: JudgedCandidate) -> Task | None:
        """Begin one if there is one to be begun; returns its task."""
        return self._begin(judged, judged.ruling.reason)

    def next(self, task: Task, why: str, known: str = "") -> Task | None:
        """Begin the one after a second try that brought nothing, and why; returns its task.

        What it brought may be `known`: a repair goes on only where that is wrong as well.
        """
        of = task.repair or task.split
        if of is None or (known and not (task.repair and self._is_wrong(known))):
            return None
        try:
            judged = self._judged_before(self.context.reader.candidate(of.candidate, self.setup.id))
        except InputError:
            return None
        return None if judged is None else self._begin(judged, f"{self._words(task)}: {why}")

    def _begin(self, judged: JudgedCandidate, why: str) -> Task | None:
        entry = judged.entry
        wanted = self._wanted(judged, round_resume.retries(self.context.reader, entry.candidate))
        if wanted is None or not self._affords(wanted) or not self._handed_back(judged, wanted):
            return None
        what = self._words(wanted)
        with self.context.writer.transaction():
            self.keeper.refuse(entry, "repair" if wanted.repair else "split", f"{why}; {what}",
                               verdict=judged.verdict_id)
            self._meter.note(cost=self.cost_of(wanted))
        failpoint("second-try.begun")
        self.context.tick(wanted.slot, "working", what)
        return wanted

    def go_on(self, candidate: Candidate) -> Task | str:
        """Begin one anew that an engine was killed over; returns its task, or why it cannot be.

        What is tried, and how often it was, is what the journal says. Raises InputError.
        """
        judged = self._judged_before(candidate)
        if judged is None or self._task_of(judged.entry) is None:
            return "what it was to do is not known"
        wanted = self._wanted(judged, round_resume.retries(self.context.reader, candidate) - 1)
        if wanted is None:
            return "the manifest allows it no more"
        if not self._affords(wanted):
            return "what is left of the budget does not pay for it"
        if not self._handed_back(judged, wanted):
            return "no worker is to begin any more"
        self._meter.note(cost=self.cost_of(wanted))
        self.context.tick(wanted.slot, "working", f"{self._words(wanted)}, taken up again")
        return wanted

    def cost_of(self, task: Task) -> float:
        """Return what an attempt costs by the manifest."""
        costs = {cli.name: cli.cost for cli in self.setup.manifest.pool.cli}
        return costs.get(task.option, 0.0) if task.backend == "cli" else 0.0

    def _judged_before(self, candidate: Candidate) -> JudgedCandidate | None:
        """Return a candidate with the verdict that it has, and its files; raises InputError."""
        entry = candidates.load(self.setup, candidate)
        verdict = self.context.recorded(entry.id, "verify", candidate.base_tree)
        if verdict is None:
            return None
        self.context.aside(lambda: self.setup.tree(entry.tree))  # it may have been cleared away
        return self.keeper.record(entry, verdict, "verify")

    def _is_wrong(self, known: str) -> bool:
        candidate = self.context.reader.candidate(known, self.setup.id)
        verdict = self.context.recorded(known, "verify", candidate.base_tree)
        return verdict is not None and repair.mendable(verdict)

    def _wanted(self, judged: JudgedCandidate, tries: int) -> Task | None:
        """Return what is to be tried with a candidate after so many second tries of it."""
        task = self._task_of(judged.entry)
        return None if task is None else \
            self._mended(judged, task, tries) or self._divided(judged, task, tries)

    def _task_of(self, entry: CandidateTree) -> Task | None:
        return self.context.reader.task(self.setup.id, entry.id)

    def _mended(self, judged: JudgedCandidate, task: Task, tries: int) -> Task | None:
        if not repair.mendable(judged.verdict):
            return None
        return repair.again(task, judged.entry, self.setup.tree(judged.entry.tree),
                            judged.ruling.reason,
                            round_resume.recorded(self.context.reader,
                                                  judged.entry.candidate).left_out,
                            tries)

    def _divided(self, judged: JudgedCandidate, task: Task, tries: int) -> Task | None:
        return split_retry.again(
            task,
            judged.entry,
            self.setup.tree(judged.entry.tree),
            judged.verdict,
            self.setup.target.source,
            complaint=judged.ruling.reason,
            tries=tries,
            split=split_retry.BACKEND in self.setup.manifest.pool.backends,
        )

    def _handed_back(self, judged: JudgedCandidate, task: Task) -> bool:
        return self.pool.again(task, judged.entry.candidate.base_commit)

    @staticmethod
    def _words(task: Task) -> str:
        if task.repair is not None:
            return f"repair {task.repair.attempt} of {task.repair.of}"
        return "tried again for the classes that gain" if task.backend == split_retry.BACKEND else \
            "its agent is asked to split it"

    def _affords(self, task: Task) -> bool:
        most, cost = self.setup.manifest.budget.cost, self.cost_of(task)
        return most is None or not cost or self._meter.spent.cost + cost <= most
