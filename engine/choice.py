"""What becomes of a round's gains: best of N wins, the others are tried again on the new best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine import candidates
from engine.candidates import Entry
from engine.desk import Desk
from engine.keeper import Judged, Keeper
from engine.records.write import Records
from harness.errors import InputError, KoptError


class EndSlot(Protocol):
    """Records a slot's last stage."""

    def __call__(self, slot: str, stage: str, detail: str, candidate: str = "") -> None: ...


class Choice:
    """Chooses among the gains of round `n`; `unjudged` closes what could not be judged again."""

    def __init__(self, desk: Desk, keeper: Keeper, records: Records, n: int, end_slot: EndSlot,
                 unjudged: Callable[[Entry, KoptError], None]) -> None:
        self.desk, self.keeper, self.records, self.n = desk, keeper, records, n
        self.setup = desk.setup
        self._end_slot, self._unjudged = end_slot, unjudged
        self._earlier: Sequence[Judged] = ()

    def choose(self, judged_now: Sequence[Judged], earlier: Sequence[Judged]) -> None:
        """Keep the best of what this engine has judged and of what one before it had."""
        lineage = self.setup.lineage
        pending = [j for j in (*judged_now, *earlier) if j.good]
        self._earlier = earlier
        while pending:
            pending.sort(key=lambda j: j.verdict.speedup or 0.0, reverse=True)
            judged = pending.pop(0)
            if judged.entry.candidate.base_commit != lineage.best:
                again = self._retry(judged)
                if again is not None:
                    pending.append(again)
            elif judged.ruling.kind == "ask":
                self._ask(judged)
            elif self.keeper.keep(judged):
                self._end_slot(judged.entry.candidate.slot, "kept", judged.ruling.reason,
                               judged.entry.id)

    def _ask(self, judged: Judged) -> None:
        """Put the best to a person; what is not better stands back until that is decided."""
        candidate = judged.entry.candidate
        ahead = self._ahead(judged)
        if not ahead:
            self.keeper.ask(judged)
            self._end_slot(candidate.slot, "waiting", judged.ruling.reason, candidate.id)
        elif candidate.round == self.n and judged not in self._earlier:
            reason = f"stands back while {ahead} waits for a person"
            self.desk.writer.add_decision(
                self.setup.id, candidate.id, "runner-up", reason, round=self.n, actor="engine",
                verdict=judged.verdict_id, slot=candidate.slot)
            self._end_slot(candidate.slot, "runner-up", reason, candidate.id)

    def _ahead(self, judged: Judged) -> str:
        """Return the waiting candidate on the same base that is at least as fast, or ""."""
        for other in self.desk.reader.candidates(self.setup.id, states=("waiting",)):
            if other.base_commit == judged.entry.candidate.base_commit:
                found = self.desk.recorded(other.id, "verify", other.base_tree)
                if found is not None and (found.speedup or 0.0) >= (judged.verdict.speedup or 0.0):
                    return other.id
        return ""

    def _retry(self, judged: Judged) -> Judged | None:
        """Re-try a runner-up on the new best; returns it judged if its gain still stands."""
        best, entry = self.setup.lineage.best, judged.entry
        try:
            moved = candidates.rebase(self.setup, entry, best, self.n)
        except InputError:
            self.keeper.refuse(entry, "runner-up", "conflicts with what was kept",
                               verdict=judged.verdict_id)
            self._end_slot(entry.candidate.slot, "runner-up", "conflicts with what was kept")
            return None
        if moved is None or not self.desk.writer.add_candidate(moved.candidate):
            self.keeper.refuse(entry, "runner-up", "the new best has this change already",
                               verdict=judged.verdict_id)
            return None
        self.keeper.refuse(entry, "runner-up", f"tried again on the new best as {moved.id}",
                           verdict=judged.verdict_id)
        self.desk.tick(entry.candidate.slot, "verifying", "again, on the new best")
        try:
            again = self.keeper.judge(moved, "verify")
        except KoptError as fault:
            self._unjudged(moved, fault)
            return None
        self.records.verdict(self.n, again)
        if again.good:
            self.desk.writer.set_candidate_state(self.setup.id, moved.id, "verified",
                                                 reason=again.ruling.reason)
            return again
        self.keeper.close(again)
        self._end_slot(entry.candidate.slot, again.ruling.kind,
                       f"on the new best: {again.ruling.reason}", moved.id)
        return None
