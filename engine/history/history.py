"""A campaign's history, computed from its journal, so that it survives a change of engine."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import takewhile
from pathlib import Path

import msgspec

from engine.history import kept_commits, regression
from engine.history.kept_commits import KeptCommits
from engine.history.regression import Regression
from engine.history.round_resume import OUTAGE
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.read import Reader
from engine.journal.records import Round, RoundOutcome
from engine.judge import judge, stop_rules
from engine.judge.stop_rules import RoundCounts
from harness.timing.plan import Score

FIXED_SLOT = "fixed"
"""The slot that searches the best source again in every round."""
RECENT = 5
"""Length of the rolling list of regressions."""


class CampaignHistory(KeptCommits, frozen=True, kw_only=True):
    """The outcomes of a campaign's rounds and of its candidates."""

    outages: frozenset[int] = frozenset()
    """The rounds in which a model's provider did not answer a slot."""

    @property
    def attempts(self) -> tuple[Round, ...]:
        """The rounds that have ended, without the baseline's."""
        return tuple(r for r in self.rounds if r.outcome not in (None, "baseline"))

    @property
    def lost(self) -> frozenset[int]:
        """The rounds that brought nothing because a provider did not answer: they do not count."""
        kept = {d.round for d in self.keeps}
        return frozenset(n for n in self.outages if not self.fresh(n) and n not in kept)

    def rounds_max(self, last_round: int | None) -> int | None:
        """Return the number of the last possible round, given that of a campaign without outages.
        """
        return None if last_round is None else last_round + len(self.lost)

    @property
    def tally(self) -> RoundCounts:
        lost = self.lost
        counts = stop_rules.tally(
            [r for r in self.rounds if r.n not in lost],
            kept={d.round for d in self.keeps}, suspended=self.suspended,
            gained={d.round for d in self.decisions if d.kind in ("ask", "provisional")})
        return msgspec.structs.replace(counts, lost=len(lost))

    @property
    def suspended(self) -> frozenset[int]:
        """The rounds during which a gain waited for a person."""
        waits = [(asked.at, next((d.at for d in self.decisions if d.candidate == asked.candidate
                                  and d.id > asked.id), math.inf))
                 for asked in self.decisions if asked.kind == "ask"]
        return frozenset(r.n for r in self.rounds for since, until in waits
                         if r.started_at < until and (r.ended_at or math.inf) > since)

    def decisions_of(self, n: int) -> list[DecisionRow]:
        """Return the decisions, of any time, on the candidates that round `n` made, in order."""
        return [d for d in self.decisions if self.round_of(d) == n]

    def round_of(self, decision: DecisionRow) -> int:
        """Return the round that made a decision's candidate."""
        candidate = self.candidates.get(decision.candidate)
        return decision.round if candidate is None else candidate.round

    def verdicts_of(self, n: int) -> list[tuple[DecisionRow, VerdictRow]]:
        """Return the decisions on round `n`'s candidates that have a verdict, with it, in order."""
        return [(d, self.verdicts[d.verdict]) for d in self.decisions_of(n)
                if d.verdict in self.verdicts]

    def until(self, at: float) -> CampaignHistory:
        """Return the history as it was at the time `at`."""
        return msgspec.structs.replace(
            self, rounds=tuple(r for r in self.rounds if (r.ended_at or math.inf) <= at),
            decisions=tuple(d for d in self.decisions if d.at <= at),
            verdicts={id: row for id, row in self.verdicts.items() if row.at <= at},
            surveys={n: bottlenecks for n, bottlenecks in self.surveys.items()
                     if any(r.n == n and r.started_at <= at for r in self.rounds)},
            rollbacks=tuple(rollback for rollback in self.rollbacks if rollback.at <= at))

    @property
    def slower(self) -> tuple[Regression, ...]:
        """All decisions for a regression, as summaries, whatever the outcome of their rounds."""
        rounds = {round.n: round for round in self.rounds}
        return tuple(self._regression(rounds[d.round], d, self.verdicts[d.verdict])
                     for d in self.decisions if d.kind == "regression" and d.round in rounds
                     and d.verdict in self.verdicts)

    @property
    def slower_in_a_row(self) -> int:
        """How many of the last decisions in a row are regressions.

        Ties of the fixed slot, repairs and splits neither count nor end the row.
        """
        row = takewhile(lambda d: d.kind == "regression" or self._is_neutral(d),
                        reversed(self.decisions))
        return sum(decision.kind == "regression" for decision in row)

    def _is_neutral(self, decision: DecisionRow) -> bool:
        candidate = self.candidates.get(decision.candidate)
        return decision.kind in ("repair", "split") or (
            decision.kind == "tie" and candidate is not None and candidate.slot == FIXED_SLOT)

    def recent(self) -> tuple[Regression, ...]:
        """Return the rounds in a row that ended in a regression, only the last RECENT."""
        streak, suspended = self.tally.consecutive_regressions, self.suspended | self.lost
        counted = [round for round in self.attempts if round.n not in suspended]
        last = counted[-min(streak, RECENT):] if streak else ()
        return tuple(filter(None, map(self.regression, last)))

    def regression(self, round: Round) -> Regression | None:
        """Return the summary of a round that was a regression, None for any other round."""
        judged = self.judged(round.n)
        if round.outcome != "regression" or not judged:
            return None
        decision, row = judged[0]
        return self._regression(round, decision, row)

    def _regression(self, round: Round, decision: DecisionRow, row: VerdictRow) -> Regression:
        return regression.of(round, decision, verdict_of(row), self.score,
                             self.candidates.get(decision.candidate), self.folder)

    def judged(self, n: int) -> list[tuple[DecisionRow, VerdictRow]]:
        """Return the engine's decisions on a round's correct candidates, the fastest first.

        Rejected candidates are left out, unless they only need a split.
        """
        correct = [(d, row) for d, row in self.verdicts_of(n)
                   if d.actor == "engine" and row.correct and (
                       d.kind != "reject" or judge.needs_split(verdict_of(row)))]
        return sorted(correct, key=lambda pair: pair[1].speedup or 0.0, reverse=True)

    def outcome(self, n: int, *, failed: bool = False) -> RoundOutcome:
        """Return a round's outcome over all engines that ran it; `failed`: a slot failed.

        It is a regression only if nothing was kept or waits and the fastest correct candidate
        regressed; repairs, splits and ties of the fixed slot are ignored if there are other
        candidates.
        """
        if any(d.round == n for d in self.keeps):
            return "keep"
        if any(candidate.round == n for candidate in self.line):
            return "waiting"
        if judged := self.judged(n):
            judged = [pair for pair in judged if not self._is_neutral(pair[0])] or judged
            decision, row = judged[0]
            lost = decision.kind == "regression" or judge.regressed(verdict_of(row), self.margin)
            return "regression" if lost else "tie"
        return "failed" if failed or self.fresh(n) else "tie"

    def outcome_now(self, round: Round) -> str:
        """Return an ended round's outcome, corrected by decisions that were made after it."""
        if any(d.round == round.n for d in self.keeps):
            return "keep"
        waits = any(member.round == round.n for member in self.line)
        return "not kept" if round.outcome == "waiting" and not waits else round.outcome or ""

    def fresh(self, n: int) -> int:
        """Return how many new candidates a round brought."""
        return sum(candidate.round == n for candidate in self.candidates.values())

    def near_gains(self) -> list[DecisionRow]:
        """Return the newest decisions on candidates that are near gains on the present best."""
        newest = {decision.candidate: decision for decision in self.decisions}
        return [decision for name, decision in newest.items() if decision.near_gain
                and (candidate := self.candidates.get(name)) and candidate.base_commit == self.best]

    def fruitless_rounds(self, without: Collection[int] = ()) -> int:
        """Return how many of the last rounds in a row had no new candidate and no keep.

        Those lost to an outage and those in `without` are left out.
        """
        kept, left_out = {d.round for d in self.keeps}, self.lost.union(without)
        return sum(1 for _ in takewhile(
            lambda round: not self.fresh(round.n) and round.n not in kept,
            [round for round in reversed(self.attempts) if round.n not in left_out]))


def read(reader: Reader, campaign: str, score: Score = "kernel",
         margin: float = 0.01) -> CampaignHistory:
    """Read a campaign's history; raises LookupError if there is no such campaign."""
    row = reader.campaign(campaign)
    if row is None:
        raise LookupError(f"no campaign {campaign}")
    return CampaignHistory(
        folder=Path(row.path), base=row.base_commit, score=score, margin=margin,
        rounds=tuple(reader.rounds(campaign)),
        decisions=tuple(reversed(reader.decisions(campaign))),
        verdicts={verdict.id: verdict for verdict in reversed(reader.verdicts(campaign))},
        candidates={candidate.id: candidate for candidate in reader.candidates(campaign)},
        rollbacks=kept_commits.rollbacks(reader, campaign), surveys=reader.surveys(campaign),
        outages=frozenset(reader.rounds_with(campaign, OUTAGE)))
