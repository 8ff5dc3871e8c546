"""What a campaign has been through, computed from its journal; nothing of it is stored again.

The rolling list of regressions is a view of the rounds, so that it survives every engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from engine.history import change_summary
from engine.journal.read import Reader
from engine.journal.records import Candidate, DecisionRow, Round, RoundOutcome, VerdictRow
from engine.judge import judge, stop_rules
from engine.judge.stop_rules import RoundCounts
from harness.timing.plan import Score
from harness.verdict import Row, Verdict

ROLLBACK = "rollback"
"""The event of a best that gave way."""
RECENT = 5
"""Regressions in the rolling list."""
Change = tuple[float, float]
"""Microseconds of the best and of the candidate, measured beside each other."""


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A round's summary in the rolling list: what was tried on which best, and how it lost.

    `baseline` is the best commit of that time. `kernel_us` is GPU kernel time, `wall_us` that of
    whole calls; None is what was not measured. `change` is a share: 0.03 is 3 % slower.
    """

    round: int
    at: float
    baseline: str
    candidate: str
    hypothesis: str
    bottleneck: str
    files: tuple[str, ...]
    wall_us: Change | None
    kernel_us: Change | None
    change: float
    points: tuple[str, ...]
    """Where it lost, class by class, and what the harness saw besides."""


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """The best failed its final acceptance and gave way to an earlier kept commit, or the base."""

    round: int
    before: str
    commit: str
    reason: str
    """Why the best does not stand."""
    told: str
    """What it gave way to, and why to that."""
    ends: bool = True
    """Whether the campaign ends by it; a person's keep after its end may be rolled back too."""
    undone: tuple[str, ...]
    """The kept commits that do not stand any more."""
    at: float = 0.0


class CampaignHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign's rounds and what was decided in them, the oldest first."""

    folder: Path
    base: str
    score: Score = "kernel"
    """Which of a GPU's times is the measured one."""
    margin: float = 0.01
    """What is slower by a larger share has regressed."""
    rounds: tuple[Round, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    verdicts: dict[int, VerdictRow] = {}
    candidates: dict[str, Candidate] = {}
    rollbacks: tuple[Rollback, ...] = ()

    @property
    def attempts(self) -> tuple[Round, ...]:
        """The rounds that have ended, without the baseline's."""
        return tuple(r for r in self.rounds if r.outcome not in (None, "baseline"))

    @property
    def tally(self) -> RoundCounts:
        return stop_rules.tally(self.rounds, kept={d.round for d in self.keeps},
                              asked={d.round for d in self.decisions if d.kind == "ask"})

    @property
    def keeps(self) -> tuple[DecisionRow, ...]:
        """The keeps that were carried out, or are being."""
        return tuple(d for d in self.decisions if d.kind == "keep" and d.candidate in
                     self.candidates and self.candidates[d.candidate].state in ("keeping", "kept"))

    @property
    def undone(self) -> frozenset[str]:
        """Kept commits that were rolled back."""
        return undone(self.rollbacks)

    def stood(self, earlier: str, commit: str) -> bool:
        """Whether an earlier keep had not been rolled back when a later one was made: what undid it
        would have undone both.
        """
        return not any(earlier in one.undone and commit not in one.undone
                       for one in self.rollbacks)

    @property
    def standing(self) -> tuple[DecisionRow, ...]:
        """The keeps that were not rolled back."""
        gone = self.undone
        return tuple(d for d in self.keeps if d.commit not in gone)

    def fails(self, commit: str) -> bool:
        """Whether a kept commit has failed its final acceptance."""
        return any(row.purpose == "headline" and row.candidate == commit[:12] and not row.correct
                   for row in self.verdicts.values())

    def accepted(self, commit: str) -> bool:
        """Whether a kept commit that stands, or one that was kept on top of it and stands, has
        passed its final acceptance.
        """
        line = [d.commit for d in self.standing]
        upwards = {one[:12] for one in line[line.index(commit):]} if commit in line else set()
        return any(row.purpose == "headline" and row.candidate in upwards and row.correct
                   for row in self.verdicts.values())

    @property
    def best(self) -> str:
        """The commit that was kept last and stands, the baseline's if none does."""
        standing = self.standing
        return standing[-1].commit if standing else self.base

    def best_after(self, n: int) -> str:
        """Return the best commit once a round, and what was decided before the next, was over.

        A roll back counts from the round on that was not over yet: what was best before it was,
        then.
        """
        ended = next((r.ended_at for r in self.rounds if r.n == n and r.ended_at), math.inf)
        gone = undone(one for one in self.rollbacks if one.round < n or one.at <= ended)
        commits = [d.commit for d in self.keeps if d.round <= n and d.commit not in gone]
        return commits[-1] if commits else self.base

    def until(self, at: float) -> CampaignHistory:
        """Return the past as it was at a time."""
        return msgspec.structs.replace(
            self, rounds=tuple(r for r in self.rounds if (r.ended_at or math.inf) <= at),
            decisions=tuple(d for d in self.decisions if d.at <= at),
            verdicts={id: row for id, row in self.verdicts.items() if row.at <= at},
            rollbacks=tuple(one for one in self.rollbacks if one.at <= at))

    def recent(self) -> tuple[Regression, ...]:
        """Return the regressions in a row that the campaign ends with, the last RECENT of them."""
        streak = self.tally.consecutive_regressions
        last = self.attempts[-min(streak, RECENT):] if streak else ()
        return tuple(found for found in map(self.regression, last) if found is not None)

    def regression(self, round: Round) -> Regression | None:
        """Return the summary of a round that was a regression, None of any other."""
        found = self.judged(round.n)
        if round.outcome != "regression" or not found:
            return None
        decision, verdict = found[0]
        return _regression(self, round, decision, verdict.decode())

    def judged(self, n: int) -> list[tuple[DecisionRow, VerdictRow]]:
        """Return what the engine decided on correct candidates in a round, the fastest first.

        What was rejected is none, unless it is honest and only needs a split.
        """
        rows = [(d, self.verdicts[d.verdict]) for d in self.decisions
                if d.round == n and d.actor == "engine" and d.verdict in self.verdicts]
        correct = [(d, row) for d, row in rows if row.correct and (
            d.kind != "reject" or judge.needs_split(row.decode()))]
        return sorted(correct, key=lambda pair: pair[1].speedup or 0.0, reverse=True)

    def outcome(self, n: int, *, failed: bool = False) -> RoundOutcome:
        """Return what a round comes to, whichever engines it had; `failed` says some slot did.

        It is a regression only if nothing was kept and its best correct candidate regressed.
        """
        if any(d.round == n for d in self.keeps):
            return "keep"
        if found := self.judged(n):
            decision, row = found[0]
            lost = decision.kind == "regression" or judge.regressed(row.decode(), self.margin)
            return "regression" if lost else "tie"
        return "failed" if failed or self.fresh(n) else "tie"

    def fresh(self, n: int) -> int:
        """Return how many candidates a round brought that the campaign had not seen before."""
        return sum(candidate.round == n for candidate in self.candidates.values())

    def fruitless(self) -> int:
        """Return how many rounds in a row, the last ones, brought no new candidate."""
        for count, round in enumerate(reversed(self.attempts)):
            if self.fresh(round.n) or any(d.round == round.n for d in self.keeps):
                return count
        return len(self.attempts)


def read(reader: Reader, campaign: str, score: Score = "kernel",
         margin: float = 0.01) -> CampaignHistory:
    """Read a campaign's past; raises LookupError if there is no such campaign."""
    one = reader.campaign(campaign)
    if one is None:
        raise LookupError(f"no campaign {campaign}")
    return CampaignHistory(folder=Path(one.path), base=one.base_commit, score=score, margin=margin,
                rounds=tuple(reader.rounds(campaign)),
                decisions=tuple(reversed(reader.decisions(campaign))),
                verdicts={row.id: row for row in reversed(reader.verdicts(campaign))},
                candidates={one.id: one for one in reader.candidates(campaign)},
                rollbacks=rollbacks(reader, campaign))


def rollbacks(reader: Reader, campaign: str) -> tuple[Rollback, ...]:
    return tuple(msgspec.structs.replace(
        msgspec.json.decode(event.payload, type=Rollback), at=event.at)
        for event in reader.events_of(campaign, ROLLBACK))


def undone(those: Iterable[Rollback]) -> frozenset[str]:
    """Return the kept commits that roll backs undid."""
    return frozenset(commit for one in those for commit in one.undone)


def _regression(past: CampaignHistory, round: Round, decision: DecisionRow,
                verdict: Verdict) -> Regression:
    candidate = past.candidates.get(decision.candidate)
    ratio = verdict.speedup or 1.0
    both = None if verdict.latency_us is None else (verdict.latency_us * ratio, verdict.latency_us)
    other = _other(verdict.rows) if verdict.latency_kind == "measured-gpu" else None
    kernel = verdict.latency_kind == "measured-gpu" and past.score == "kernel"
    return Regression(
        round=round.n, at=decision.at, candidate=decision.candidate,
        baseline=candidate.base_commit if candidate else round.incumbent,
        hypothesis=candidate.hypothesis if candidate else "",
        bottleneck=candidate.bottleneck if candidate else "",
        files=change_summary.files(past.folder, candidate), wall_us=other if kernel else both,
        kernel_us=both if kernel else other, change=1 / ratio - 1,
        points=points(verdict.rows) + tuple(
            f"{told.kind}: {told.detail}" for told in verdict.evidence
            if told.kind in ("kernels", "launch")))


def _other(rows: Sequence[Row]) -> Change | None:
    """Return the time that was not scored, over all classes as the scored one is."""
    times = [(row.incumbent_other_us, row.other_us) for row in rows]
    weight = math.fsum(row.weight for row in rows)
    sums = [math.fsum(row.weight * math.log(us) for row, us in zip(rows, side, strict=True) if us)
            for side in zip(*times, strict=True)]
    if not weight or not all(us for pair in times for us in pair):
        return None
    return math.exp(sums[0] / weight), math.exp(sums[1] / weight)


def points(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return where a candidate lost: `tall 6.2 % slower (41 % of the roofline)`, worst first."""
    slower = [row for row in rows if row.log_ratio is not None and row.log_ratio < 0]
    told = []
    for row in sorted(slower, key=lambda row: row.log_ratio or 0.0):
        reach = "" if row.pct_of_roofline is None else f" ({row.pct_of_roofline:.0f}% of roofline)"
        told.append(f"{row.config_class} {math.expm1(-(row.log_ratio or 0.0)):.1%} slower{reach}"
                    + (f", {row.note}" if row.note else ""))
    return tuple(told)
