"""Second tries: a candidate that is wrong goes back to be mended, one that divides the classes is
taken for those that gain.
"""

from __future__ import annotations

from engine import candidates, divide, repair, resume
from engine.budget import Meter
from engine.candidates import Entry
from engine.desk import Desk
from engine.failpoint import failpoint
from engine.journal.records import Candidate
from engine.keeper import Judged, Keeper
from engine.pool import Pool
from engine.workers.base import Task


class SecondTries:
    """Gives slots of one round their work back."""

    def __init__(self, desk: Desk, keeper: Keeper, pool: Pool, meter: Meter) -> None:
        self.desk, self.setup, self.keeper, self.pool = desk, desk.setup, keeper, pool
        self._meter = meter

    def begin(self, judged: Judged) -> Task | None:
        """Begin one if there is one to be begun; returns its task."""
        task = self._task_of(judged.entry)
        wanted = None if task is None else self._mended(judged, task) or self._divided(judged, task)
        if wanted is None or not self._affords(wanted) or not self._handed_back(judged, wanted):
            return None
        entry, what = judged.entry, self._words(wanted)
        with self.desk.writer.transaction():
            self.keeper.refuse(entry, "split" if wanted.divide else "repair",
                               f"{judged.ruling.reason}; {what}", verdict=judged.verdict_id)
            self._meter.note(cost=self.cost_of(wanted))
        failpoint("second-try.begun")
        self.desk.tick(wanted.slot, "working", what)
        return wanted

    def go_on(self, candidate: Candidate) -> Task | str:
        """Begin one anew that an engine was killed over; returns its task, or why it cannot be.

        What is tried, and how often it was, is what the journal says. Raises InputError.
        """
        entry = candidates.load(self.setup, candidate)
        task = self._task_of(entry)
        verdict = self.desk.recorded(entry.id, "verify", candidate.base_tree)
        if task is None or verdict is None:
            return "what it was to do is not known"
        self.desk.aside(lambda: self.setup.tree(entry.tree))  # it may have been cleared away
        judged = self.keeper.record(entry, verdict, "verify")
        wanted = self._mended(judged, task) or self._divided(judged, task)
        if wanted is None:
            return "the manifest allows it no more"
        if not self._affords(wanted):
            return "what is left of the budget does not pay for it"
        if not self._handed_back(judged, wanted):
            return "no worker is to begin any more"
        self._meter.note(cost=self.cost_of(wanted))
        self.desk.tick(wanted.slot, "working", f"{self._words(wanted)}, taken up again")
        return wanted

    def cost_of(self, task: Task) -> float:
        """Return what an attempt costs by the manifest."""
        costs = {cli.name: cli.cost for cli in self.setup.manifest.pool.cli}
        return costs.get(task.option, 0.0) if task.backend == "cli" else 0.0

    def _task_of(self, entry: Entry) -> Task | None:
        return resume.task_of(self.desk.reader, self.setup.id, entry.id)

    def _mended(self, judged: Judged, task: Task) -> Task | None:
        if not repair.mendable(judged.verdict):
            return None
        return repair.again(task, judged.entry, self.setup.tree(judged.entry.tree),
                            judged.ruling.reason)

    def _divided(self, judged: Judged, task: Task) -> Task | None:
        if "split" not in self.setup.manifest.pool.backends:
            return None
        return divide.again(task, judged.entry, self.setup.tree(judged.entry.tree), judged.verdict,
                            self.setup.target.source)

    def _handed_back(self, judged: Judged, task: Task) -> bool:
        return self.pool.again(task, judged.entry.candidate.base_commit)

    @staticmethod
    def _words(task: Task) -> str:
        return "tried again for the classes that gain" if task.mend is None else \
            f"repair {task.mend.attempt} of {task.mend.of}"

    def _affords(self, task: Task) -> bool:
        most, cost = self.setup.manifest.budget.cost, self.cost_of(task)
        return most is None or not cost or self._meter.spent.cost + cost <= most
