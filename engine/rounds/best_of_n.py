"""What becomes of a round's gains: best of N wins, the others are tried again on the new best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.context import EngineContext
from engine.failpoint import failpoint
from engine.judge import candidate
from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.lineage.promote import Keeper
from engine.records.writer import Records
from engine.rounds.slots import RoundSlots
from harness.errors import InputError, KoptError


class Choice:
    """Chooses among the gains of round `n`; `unjudged` closes what could not be judged again."""

    def __init__(self, context: EngineContext, keeper: Keeper, records: Records, slots: RoundSlots,
                 unjudged: Callable[[CandidateTree, KoptError], None]) -> None:
        self.context, self.keeper, self.records, self.n = context, keeper, records, slots.n
        self.setup, self._slots, self._unjudged = context.setup, slots, unjudged

    def choose(self, judged: Sequence[JudgedCandidate]) -> None:
        """Keep the best of what this engine has judged and of what one before it had."""
        repo = self.setup.repo
        pending = [one for one in judged if one.good]
        while pending:
            pending.sort(key=lambda j: j.verdict.speedup or 0.0, reverse=True)
            best = pending.pop(0)
            if best.entry.candidate.base_commit != repo.best:
                again = self._retry(best)
                if again is not None:
                    pending.append(again)
            elif best.ruling.kind == "ask":
                self._ask(best)
            elif self.keeper.keep(best, refuse=self._slots.refuse):
                self._slots.end_of(best.entry.candidate, "kept", best.ruling.reason)

    def _ask(self, judged: JudgedCandidate) -> None:
        """Put the best to a person; what is not better stands back until that is decided."""
        if ahead := self._ahead(judged):
            self._slots.stand_back(judged, f"stands back while {ahead} waits for a person")
        else:
            self._slots.ask(judged)

    def _ahead(self, judged: JudgedCandidate) -> str:
        """Return the waiting candidate on the same base that is at least as fast, or ""."""
        for other in self.context.reader.candidates(self.setup.id, states=("waiting",)):
            if other.base_commit == judged.entry.candidate.base_commit:
                found = self.context.recorded(other.id, "verify", other.base_tree)
                if found is not None and (found.speedup or 0.0) >= (judged.verdict.speedup or 0.0):
                    return other.id
        return ""

    def _retry(self, judged: JudgedCandidate) -> JudgedCandidate | None:
        """Re-try a runner-up on the new best; returns it judged if its gain still stands."""
        best, entry = self.setup.repo.best, judged.entry
        try:
            moved = candidate.rebase(self.setup, entry, best, self.n)
        except InputError:
            self._stands_down(judged, "conflicts with what was kept")
            return None
        if moved is None:
            self._stands_down(judged, "the new best has this change already")
            return None
        with self.context.writer.transaction():
            new = self.context.writer.add_candidate(moved.candidate, form_of=entry.id)
            failpoint("retry.captured")
            if new:
                self.keeper.refuse(entry, "runner-up", f"tried again on the new best as {moved.id}",
                                   verdict=judged.verdict_id)
        if not new:
            self._stands_down(judged, f"on the new best it is {self.keeper.known_as(moved.id)}")
            return None
        self._slots.tick(entry.candidate, "again, on the new best")
        try:
            again = self.keeper.judge(moved, "verify")
        except KoptError as fault:
            self._unjudged(moved, fault)
            return None
        self.records.verdict(self.n, again)
        if again.good:
            self.context.writer.set_candidate_state(self.setup.id, moved.id, "verified",
                                                    reason=again.ruling.reason)
            return again
        self._slots.close(again)
        return None

    def _stands_down(self, judged: JudgedCandidate, reason: str) -> None:
        self._slots.refuse(judged.entry, "runner-up", reason, verdict=judged.verdict_id)
