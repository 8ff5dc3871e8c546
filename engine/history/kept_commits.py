"""What a campaign has kept, what it rolled back, and what waits on top of its best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from engine.history import waiting_line
from engine.history.waiting_line import Line
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.read import Reader
from engine.journal.records import Bottleneck, Candidate, Round
from engine.judge.attribution import Attribution, attribute
from harness.timing.plan import Score
from harness.verdict import Verdict

ROLLBACK = "rollback"
"""The kind of a rollback's event."""


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """A best that failed its final acceptance, and the kept commit or base that replaced it."""

    round: int
    before: str
    commit: str
    reason: str
    """Why the best was not accepted."""
    destination: str = msgspec.field(name="told")  # the name in the journal
    """Text: the commit that replaced it, and why that one."""
    ends: bool = True
    """Whether this rollback is the campaign's reason to stop."""
    undone: tuple[str, ...]
    """The kept commits that were rolled back."""
    at: float = 0.0

    @property
    def summary(self) -> str:
        return f"from {self.before[:12]}: {self.reason}; {self.destination}"


class KeptCommits(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign's records, oldest first, and what follows from them for its kept commits."""

    folder: Path
    base: str
    score: Score = "kernel"
    """Which of a GPU's two times decides."""
    margin: float = 0.01
    """A candidate that is slower by more than this share is a regression."""
    rounds: tuple[Round, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    verdicts: dict[int, VerdictRow] = {}
    candidates: dict[str, Candidate] = {}
    rollbacks: tuple[Rollback, ...] = ()
    surveys: Mapping[int, Sequence[Bottleneck]] = {}
    """The bottlenecks of the best before each round, by round."""

    def row_of(self, decision: DecisionRow) -> VerdictRow | None:
        """Return the recorded verdict on which a decision is based."""
        return self.verdicts.get(decision.verdict or 0)

    def verdict_of(self, decision: DecisionRow) -> Verdict | None:
        """Return the verdict on which a decision is based."""
        row = self.row_of(decision)
        return None if row is None else verdict_of(row)

    def attribution(self, keep: DecisionRow) -> Attribution | None:
        """Return in which classes a kept change gained, and its aim; None without a verdict."""
        candidate, verdict = self.candidates.get(keep.candidate), self.verdict_of(keep)
        return None if candidate is None or verdict is None else \
            attribute(candidate, verdict, list(chain(*self.surveys.values())))

    @property
    def keeps(self) -> tuple[DecisionRow, ...]:
        """The keeps that are done or in progress."""
        return tuple(d for d in self.decisions if d.kind == "keep" and d.candidate in
                     self.candidates and self.candidates[d.candidate].state in ("keeping", "kept"))

    @property
    def undone(self) -> frozenset[str]:
        """The kept commits that were rolled back."""
        return undone(self.rollbacks)

    @property
    def standing(self) -> tuple[DecisionRow, ...]:
        """The keeps that were not rolled back."""
        undone_commits = self.undone
        return tuple(d for d in self.keeps if d.commit not in undone_commits)

    def was_in_place(self, earlier: str, commit: str) -> bool:
        """Return whether an earlier keep had not been rolled back when `commit` was kept.

        A rollback of the earlier keep after that moment would have undone both.
        """
        return not any(earlier in rollback.undone and commit not in rollback.undone
                       for rollback in self.rollbacks)

    def fails(self, commit: str) -> bool:
        """Return whether a kept commit has failed its final acceptance."""
        return any(row.purpose == "headline" and row.candidate == commit[:12] and not row.correct
                   for row in self.verdicts.values())

    def accepted(self, commit: str) -> bool:
        """Return whether a standing commit, or one kept on top of it, passed final acceptance."""
        line = [d.commit for d in self.standing]
        upwards = {later[:12] for later in line[line.index(commit):]} if commit in line else set()
        return any(row.purpose == "headline" and row.candidate in upwards and row.correct
                   for row in self.verdicts.values())

    @property
    def baseline(self) -> VerdictRow | None:
        """The first verdict on the baseline."""
        return next((row for row in self.verdicts.values() if row.purpose == "baseline"), None)

    @property
    def best(self) -> str:
        """The newest kept commit that was not rolled back, else the baseline's."""
        standing = self.standing
        return standing[-1].commit if standing else self.base

    @property
    def line(self) -> Line:
        """The gains that wait for approval, and what rests on them."""
        return waiting_line.of(self.candidates.values(), self.best)

    @property
    def tip(self) -> str:
        """The provisional best: the last commit of the waiting line, else the best."""
        return self.line[-1].commit if self.line else self.best

    @property
    def provisional_verdict(self) -> VerdictRow | None:
        """The newest correct verdict on the provisional best against the baseline."""
        return next((row for row in reversed(self.verdicts.values())
                     if row.purpose == waiting_line.PROVISIONAL and row.correct and self.line
                     and row.candidate == self.tip[:12]), None)

    def placed(self, candidate: str) -> VerdictRow | None:
        """Return the verdict that put a candidate onto the waiting line."""
        return next((self.row_of(d) for d in reversed(self.decisions)
                     if d.candidate == candidate and d.kind in ("ask", "provisional")), None)

    def best_after(self, n: int) -> str:
        """Return the best commit after the keeps of all rounds up to `n`.

        A rollback counts if it happened in an earlier round or before round `n` ended.
        """
        ended_at = next((r.ended_at for r in self.rounds if r.n == n and r.ended_at), math.inf)
        undone_commits = undone(rollback for rollback in self.rollbacks
                                if rollback.round < n or rollback.at <= ended_at)
        return [self.base, *(d.commit for d in self.keeps
                             if d.round <= n and d.commit not in undone_commits)][-1]


def rollbacks(reader: Reader, campaign: str) -> tuple[Rollback, ...]:
    return tuple(msgspec.structs.replace(event.decoded(Rollback), at=event.at)
                 for event in reader.events_of(campaign, ROLLBACK))


def undone(rollbacks: Iterable[Rollback]) -> frozenset[str]:
    """Return the kept commits that rollbacks undid."""
    return frozenset(commit for rollback in rollbacks for commit in rollback.undone)
