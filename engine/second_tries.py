"""Second tries: a candidate that is wrong goes back to be mended, one that divides the classes is
taken for those that gain.
"""

from __future__ import annotations

from engine import divide, repair
from engine.budget import Meter
from engine.desk import Desk
from engine.journal.records import DecisionKind
from engine.keeper import Judged, Keeper
from engine.pool import Pool
from engine.workers.base import Task


class SecondTries:
    """Gives slots of one round their work back."""

    def __init__(self, desk: Desk, keeper: Keeper, pool: Pool, meter: Meter) -> None:
        self.desk, self.setup, self.keeper, self.pool = desk, desk.setup, keeper, pool
        self._meter = meter
        self.task_of: dict[str, Task] = {}
        """By candidate."""

    def begin(self, judged: Judged, base: str) -> Task | None:
        """Begin one if there is one to be begun; returns its task."""
        task = self.task_of.get(judged.entry.id)
        if task is None:
            return None
        return self._mend(judged, task, base) or self._divide(judged, task, base)

    def cost_of(self, task: Task) -> float:
        """Return what an attempt costs by the manifest."""
        costs = {cli.name: cli.cost for cli in self.setup.manifest.pool.cli}
        return costs.get(task.option, 0.0) if task.backend == "cli" else 0.0

    def _mend(self, judged: Judged, task: Task, base: str) -> Task | None:
        if not repair.mendable(judged.verdict):
            return None
        entry = judged.entry
        wanted = repair.again(task, entry, self.setup.tree(entry.tree), judged.ruling.reason)
        if wanted is None or wanted.mend is None or not self._affords(task):
            return None
        what = f"repair {wanted.mend.attempt} of {wanted.mend.of}"
        if not self._begun(judged, wanted, base, "repair", what):
            return None
        self._meter.note(cost=self.cost_of(task))
        return wanted

    def _divide(self, judged: Judged, task: Task, base: str) -> Task | None:
        if "split" not in self.setup.manifest.pool.backends:
            return None
        entry = judged.entry
        wanted = divide.again(task, entry, self.setup.tree(entry.tree), judged.verdict,
                              self.setup.target.source)
        what = "tried again for the classes that gain"
        return wanted if wanted and self._begun(judged, wanted, base, "split", what) else None

    def _begun(self, judged: Judged, task: Task, base: str, kind: DecisionKind, what: str) -> bool:
        if not self.pool.again(task, base):
            return False
        self.keeper.refuse(judged.entry, kind, f"{judged.ruling.reason}; {what}",
                           verdict=judged.verdict_id)
        self.desk.tick(task.slot, "working", what)
        return True

    def _affords(self, task: Task) -> bool:
        most = self.setup.manifest.budget.cost
        return most is None or self._meter.spent.cost + self.cost_of(task) <= most
